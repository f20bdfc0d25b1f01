"""What runs and groups of runs are called on MLflow's pages, whose columns show few characters.

So what tells trials apart comes first, and what most trials of a grid share comes last. All
settings are parameters of the run anyway.
"""

from fedcome_ray.experiments.labels import label
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.hyperparameters import Hyperparameters, name_of
from fedcome_ray.tracking.views import COMPARED, CONDITION


def title(trial: Trial) -> str:
    """The name of a trial's run."""
    start = f"{name_of(trial.method)} {_share(trial)} s{trial.seed} {name_of(trial.sampler)}"
    return f"{start} {_rest(trial)}"


def group_tags(trial: Trial) -> dict[str, str]:
    """The tags by which the saved views group.

    A condition ends with digits of all settings but the seed, a plugin's code among them: trials of
    other code are never averaged with these.
    """
    compared = f"{name_of(trial.method)} {_share(trial)} {name_of(trial.sampler)}"
    digest = trial.model_copy(update={"seed": 0}).key[:4]
    return {COMPARED: compared, CONDITION: f"{compared} {_rest(trial)} {digest}"}


def _share(trial: Trial) -> str:
    if trial.cohort_size is not None:
        return f"m{trial.cohort_size}"
    return f"p{trial.participation or 1.0:g}"


def _rest(trial: Trial) -> str:
    """The dataset, and the settings of method and sampler that are not the default."""
    unusual = "".join(map(_unusual, (trial.method, trial.sampler)))
    return f"{trial.data.dataset}{unusual}"


def _unusual(settings: Hyperparameters) -> str:
    found = label(settings).removeprefix(name_of(settings)).strip("()")
    return f" {found}" if found else ""
