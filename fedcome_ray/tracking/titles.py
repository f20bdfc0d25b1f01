"""What runs are called on MLflow's pages, whose columns show some twenty characters.

So what tells trials apart comes first, and what most trials of a grid share comes last; all
settings are parameters of the run anyway.
"""

from fedcome_ray.experiments.trial import Trial, label
from fedcome_ray.hyperparameters import name_of

SEED = 0  # any; the same for all


def title(trial: Trial) -> str:
    """The name of a trial's run."""
    return f"{label(trial.method)} {_share(trial)} s{trial.seed} {_rest(trial)}"


def condition(trial: Trial) -> str:
    """What trials have in common that differ in their seeds alone, and no others have.

    The digits at its end are of all settings, a plugin's code too: other code is another condition.
    """
    digest = trial.model_copy(update={"seed": SEED}).key[:4]
    return f"{label(trial.method)} {_share(trial)} {_rest(trial)} {digest}"


def _share(trial: Trial) -> str:
    if trial.cohort_size is not None:
        return f"m{trial.cohort_size}"
    return f"p{trial.participation or 1.0:g}"


def _rest(trial: Trial) -> str:
    return f"{name_of(trial.sampler)} {trial.data.dataset}"
