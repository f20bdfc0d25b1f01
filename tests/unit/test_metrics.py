"""The order in which metrics are shown."""

from fedcome_ray import metrics


def test_accuracy_comes_first_and_the_solver_last() -> None:
    names = [
        "server/kkt_residual",
        "own/number",
        "server/drift",
        "conflicts/before",
        "loss/client_max",
        metrics.LOSS,
        "server/solver_iterations",
        metrics.WORST_DECILE,
        metrics.ACCURACY,
        metrics.ACCURACY_TAIL,
    ]
    assert sorted(names, key=metrics.importance) == [
        metrics.ACCURACY_TAIL,
        metrics.ACCURACY,
        metrics.WORST_DECILE,
        metrics.LOSS,
        "loss/client_max",
        "conflicts/before",
        "server/drift",
        "own/number",
        "server/kkt_residual",
        "server/solver_iterations",
    ]
