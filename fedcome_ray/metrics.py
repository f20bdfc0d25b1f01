"""The names of metrics: under which a round records them, MLflow keeps them, and tables read them.

A method's `aggregate` names its own. Those without a family, like `drift`, belong to `server/`.
Whatever a round records reaches MLflow, the tables of results and the report; the names here are
those that code refers to.
"""

ACCURACY = "accuracy/test"
ACCURACY_TAIL = "accuracy/tail"  # mean over the last tenth of the rounds; the last round has it
ACCURACY_TRAIN = "accuracy/train"
CLIENT_MEAN = "accuracy/client_mean"
CLIENT_STD = "accuracy/client_std"
WORST_DECILE = "accuracy/worst_decile"
BEST_DECILE = "accuracy/best_decile"
PERSONAL = "accuracy/personal"  # after clients trained the params on their own examples
PERSONAL_MEAN = "accuracy/personal_mean"
PERSONAL_STD = "accuracy/personal_std"
PERSONAL_WORST_DECILE = "accuracy/personal_worst_decile"
PERSONAL_BEST_DECILE = "accuracy/personal_best_decile"
LOSS = "loss/test"
LOSS_PERSONAL = "loss/personal"
LOSS_TRAIN = "loss/train"
LOSS_CLIENT_MAX = "loss/client_max"
CONFLICTS_BEFORE = "conflicts/before"
CONFLICTS_AFTER = "conflicts/after"
OPPOSED = "conflicts/opposed"
COHORT_SIZE = "cohort/size"
ABSENT = "cohort/absent"
STRAGGLERS = "cohort/stragglers"
STEP_NORM = "server/step_norm"
STEP_RATIO = "server/step_ratio"
UP_BYTES = "comm/up_bytes"
DOWN_BYTES = "comm/down_bytes"
TOTAL_BYTES = "comm/total_bytes"  # both ways, of all rounds so far
SECONDS_ROUND = "seconds/round"
SECONDS_EVALUATE = "seconds/evaluate"

WATCHED = {
    ACCURACY: True,
    CLIENT_MEAN: True,
    CLIENT_STD: False,
    WORST_DECILE: True,
    BEST_DECILE: True,
    LOSS: False,
    LOSS_CLIENT_MAX: False,
}
"""What every evaluation tells, by which a trial may be stopped: whether more of it is better."""
HEADLINES = (ACCURACY_TAIL, ACCURACY, WORST_DECILE, LOSS, SECONDS_ROUND)
"""What a table of trials shows first."""
CURVES = (ACCURACY, LOSS, WORST_DECILE, OPPOSED)
"""What is drawn over the rounds first."""


FAMILIES = ("accuracy/", "loss/", "conflicts/", "server/", "cohort/", "comm/")
SOLVER = ("server/solver_iterations", "server/kkt_residual", "server/solve_seconds")
"""What tells of the solver, and not of learning."""


def importance(name: str) -> tuple[bool, list[bool], bool, str]:
    """The order in which people want to see metrics."""
    family = [not name.startswith(one) for one in FAMILIES]
    is_headline = name in (ACCURACY_TAIL, ACCURACY, LOSS)
    return name in SOLVER, family, not is_headline, name


def of_server(name: str) -> str:
    """The full name of what a method tells; families of their own stay as they are."""
    return name if "/" in name else f"server/{name}"


def of_seconds(phase: str) -> str:
    """The name of the wall time of a phase of the round."""
    return f"seconds/{phase}"


def phase_of(name: str) -> str:
    """The inverse of `of_seconds`."""
    return name.removeprefix("seconds/")
