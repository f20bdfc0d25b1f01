import pandas as pd
import pytest

from analysis import figures, style
from analysis.contents import contents_of
from analysis.study import LAYOUTS, Study, select
from fedcome_ray.methods import PAPER
from tests.analysis.conftest import join, seeds


def study_with_everything(grid: str) -> Study:
    """Two methods, two seeds, clients, and a similarity table."""
    settings = {"grid": grid, "sampler__name": "similarity", "sampler__greedy_fraction": 0.7}
    frame = join(
        *(
            seeds(method, 60.0, 62.0, **settings, sampler__ema=ema, participation=0.2)
            for method in ("fedfv", "fedavg", "fedcome")
            for ema in ((0.5, 0.7) if grid == "sensitivity" else (0.5,))
        )
    )
    study = select(frame)
    runs = study.frame["run_id"].unique()
    clients = pd.DataFrame(
        [
            {
                "run_id": run,
                "round": r,
                "client": c,
                "test_accuracy": 0.5 + c / 10,
                "test_loss": 2 - r,
            }
            for run in runs
            for r in range(3)
            for c in range(4)
        ]
    )
    pairs = [(a, b) for a in range(4) for b in range(4)]
    similarity = pd.DataFrame(
        {"run_id": runs[0], "client": a, "other": b, "similarity": 1.0 if a == b else -0.2}
        for a, b in pairs
    )
    population = pd.DataFrame(
        {"run_id": runs[0], "client": range(4), "classes": ["0 1", "0 1", "2", "2 3"]}
    )
    return study._replace(clients=clients, similarity=similarity, population=population)


def draw(study: Study) -> list[figures.Drawing]:
    return list(figures.draw(study, contents_of(study.grid).figures))


@pytest.mark.parametrize("grid", [*LAYOUTS, "a_users_grid"])
def test_every_grid_can_be_drawn(grid: str) -> None:
    drawings = {d.name.removeprefix(f"{grid}_"): d for d in draw(study_with_everything(grid))}
    assert {"time", "similarity"} <= set(drawings)
    special = {"fairness": "accuracy", "client_loss": "client_loss", "sensitivity": "sensitivity"}
    assert set(drawings) & set(special.values()) == {special[n] for n in special if n == grid}
    for drawing in drawings.values():
        assert drawing.caption
        assert figures.as_bytes(drawing.figure, "png").startswith(b"\x89PNG")


def test_the_similarity_table_is_drawn_with_the_classes_of_its_own_clients() -> None:
    study = study_with_everything("scaling")
    others = pd.DataFrame({"run_id": "another", "client": range(9), "classes": "7"})
    figure = figures.similarity(
        study._replace(population=pd.concat([others, study.population], ignore_index=True))
    )
    assert figure is not None
    words = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert words == ["0 1", "2", "2 3"]


def test_the_same_figure_is_the_same_file() -> None:
    first, second = (
        figures.as_bytes(draw(study_with_everything("fairness"))[0].figure, "svg") for _ in range(2)
    )
    assert first == second


def test_nothing_is_drawn_of_trials_that_all_failed() -> None:
    study = select(seeds("fedcome", 60.0, status="FAILED"))
    assert draw(study) == []


def test_methods_differ_in_colour_and_in_marker() -> None:
    looks = [style.LOOKS[method] for method in PAPER]
    assert len({look.colour for look in looks}) == len({look.marker for look in looks}) == 7


def test_a_method_looks_the_same_whatever_is_beside_it() -> None:
    alone = style.looks({"FedDC": "feddc"})
    assert alone["FedDC"] == style.looks({"FedAvg": "fedavg", "FedDC": "feddc"})["FedDC"]
