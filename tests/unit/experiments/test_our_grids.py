"""The grid files that we ship: they make the trials that their tables need."""

from math import prod

import pytest

from fedcome_ray import datasets, methods
from fedcome_ray.errors import GridError
from fedcome_ray.experiments import grid
from fedcome_ray.experiments.settings import flatten
from fedcome_ray.experiments.trial import names_among
from fedcome_ray.hyperparameters import name_of
from fedcome_ray.methods.fedavg import FedAvg

# Of the profiles quick, laptop, mini and paper.
EXPECTED = {
    "client_loss": (18, 30, 6, 2 * 3 * 3),
    "conflict_family": (78, 130, 26, 26 * 3),
    "controls": (42, 70, 14, 14 * 3),
    "fairness": (12, 20, 2, 3 * 2 * 3),
    "full_participation": (21, 35, 7, 4 * 7 * 3),
    "heterogeneity": (63, 105, 21, 7 * 3 * 3),
    "partial_participation": (168, 280, 56, 7 * 2 * 4 * 3),
    "references": (30, 50, 10, 8 * 2 * 3),
    "samplers": (60, 100, 20, 2 * 5 * 2 * 3),
    "scaling": (6, 9, 9, 3 * 3),
    "search": (36, 36, 36, 1 + 3 + 1 + 3 + 6 * 4 + 3 + 1),
    "sensitivity": (75, 125, 9, 5 * 5 * 3),
}
EMBEDDED = {"digits", "synthetic"}
every_grid = pytest.mark.parametrize("name", grid.grid_names())


def test_every_grid_is_counted_here() -> None:
    assert grid.grid_names() == sorted(EXPECTED)


@every_grid
def test_the_profiles_are_the_ones_that_the_help_names(name: str) -> None:
    assert set(grid.load(name).profiles) == set(grid.PROFILES)


@every_grid
@pytest.mark.parametrize(("column", "profile"), list(enumerate(grid.PROFILES)))
def test_a_profile_makes_the_expected_number_of_trials(
    name: str, column: int, profile: str
) -> None:
    trials = grid.expand(grid.load(name), profile)
    assert len(trials) == EXPECTED[name][column]
    assert len({trial.folder_name for trial in trials}) == len(trials)


@every_grid
def test_no_two_points_of_a_grid_are_the_same_trial(name: str) -> None:
    chosen = grid.load(name)
    num_points = prod(len(values) for values in chosen.axes.values())
    assert len(grid.expand(chosen, "paper")) == num_points


@pytest.mark.parametrize("name", sorted(set(EXPECTED) - {"scaling"}))
def test_laptop_is_mnist_with_five_seeds(name: str) -> None:
    trials = grid.expand(grid.load(name), "laptop")
    assert {trial.data.dataset for trial in trials} == {"mnist"}
    assert {trial.seed for trial in trials} == ({0} if name == "search" else set(range(5)))


# But for the size of data and model; client_loss and scaling have regimes of their own.
@pytest.mark.parametrize("name", sorted(set(EXPECTED) - {"client_loss", "scaling"}))
@pytest.mark.parametrize("profile", ["quick", "laptop"])
def test_small_profiles_are_in_the_papers_regime(name: str, profile: str) -> None:
    for trial in grid.expand(grid.load(name), profile):
        local, shape = trial.local, datasets.describe(trial.data)
        assert (local.lr, local.lr_decay, local.epochs, local.weight_decay) == (
            0.05,
            0.998,
            1,
            0.001,
        )
        assert local.batch_size is not None
        assert 8.5 <= shape.num_train / shape.num_clients / local.batch_size <= 12


@pytest.mark.parametrize("name", ["controls", "search"])
@pytest.mark.parametrize("profile", grid.PROFILES)
def test_settings_are_chosen_on_held_out_examples(name: str, profile: str) -> None:
    """The test examples are not looked at before the choice is made."""
    trials = [flatten(t.model_dump()) for t in grid.expand(grid.load(name), profile)]
    held_out = {t.get("method.server_lr") for t in trials if t["data.validation"] is not None}
    tested = {t.get("method.server_lr") for t in trials if t["data.validation"] is None}
    assert tested == set() if name == "search" else held_out <= tested


@every_grid
def test_quick_needs_no_download(name: str) -> None:
    trials = grid.expand(grid.load(name), "quick")
    assert {trial.data.dataset for trial in trials} <= EMBEDDED


@pytest.mark.parametrize("name", ["full_participation", "heterogeneity", "partial_participation"])
def test_a_table_has_a_row_for_each_method_of_the_paper(name: str) -> None:
    trials = grid.expand(grid.load(name), "paper")
    rows = dict.fromkeys(name_of(trial.method) for trial in trials)
    assert tuple(rows) == methods.PAPER


@every_grid
def test_every_grid_says_in_one_line_what_it_is_for(name: str) -> None:
    description = grid.load(name).description
    assert 0 < len(description) <= 100
    assert "\n" not in description


# What grids claim to share: the trials of one that have these settings are all in the other.
SHARED = [
    ("heterogeneity", {"data.partition.classes": 2}, "full_participation"),
    ("sensitivity", {"sampler.ema": 0.5, "sampler.greedy_fraction": 0.7}, "partial_participation"),
    ("sensitivity", {"sampler.ema": 0.7, "sampler.greedy_fraction": 0.7}, "controls"),
    (
        "controls",
        {"method.name": "fedcome", "method.clamp": None, "method.weights": "samples"}
        | {"method.match_norm": False, "sampler.ema": 0.5, "sampler.variant": "clean"},
        "partial_participation",
    ),
    (
        "controls",
        {"method.name": "fedavg", "method.server_lr": 1.0, "data.validation": None},
        "partial_participation",
    ),
    ("conflict_family", {"method.name": "fedavg"}, "partial_participation"),
    ("conflict_family", {"method.name": "fedfv"}, "partial_participation"),
    (
        "conflict_family",
        {"method.name": "fedcome", "method.match_norm": False},
        "partial_participation",
    ),
    ("samplers", {"sampler.name": "random"}, "partial_participation"),
    ("samplers", {"sampler.name": "similarity"}, "partial_participation"),
    ("fairness", {"data.dataset": "cifar10", "data.test_split": "natural"}, "full_participation"),
    ("fairness", {"data.dataset": "femnist"}, "full_participation"),
]


@pytest.mark.parametrize(("name", "settings", "other"), SHARED)
def test_what_grids_claim_to_share_are_the_same_trials(
    name: str, settings: dict[str, object], other: str
) -> None:
    trials = grid.expand(grid.load(name), "paper")
    own = [trial for trial in trials if settings.items() <= flatten(trial.model_dump()).items()]
    keys = {trial.key for trial in grid.expand(grid.load(other), "paper")}
    assert own
    assert {trial.key for trial in own} <= keys


@pytest.mark.parametrize("profile", grid.PROFILES)
def test_references_are_run_where_methods_are(profile: str) -> None:
    def cases(name: str, sampler: str = "random") -> set[str]:
        trials = grid.expand(grid.load(name), profile)
        own = [trial for trial in trials if name_of(trial.sampler) == sampler]
        return {trial.model_copy(update={"method": FedAvg()}).key for trial in own}

    assert cases("references") == cases("full_participation") | cases("partial_participation")


def test_another_dataset_is_tried_along_the_same_axes() -> None:
    chosen = grid.load("heterogeneity")
    trials = grid.expand(chosen, "paper", [("data.dataset", "digits"), ("model.name", "mlp")])
    assert len(trials) == EXPECTED["heterogeneity"][-1]
    classes = {flatten(trial.model_dump())["data.partition.classes"] for trial in trials}
    assert classes == {2, 3, 4}


def test_an_axis_that_another_dataset_does_not_have_is_not_dropped_in_silence() -> None:
    with pytest.raises(GridError, match=r"data\.partition: synthetic has no such setting"):
        grid.expand(grid.load("heterogeneity"), "paper", [("data.dataset", "synthetic")])


@pytest.mark.parametrize("name", grid.grid_names())
@pytest.mark.parametrize("profile", grid.PROFILES)
def test_names_tell_the_trials_of_a_launch_apart(name: str, profile: str) -> None:
    trials = grid.expand(grid.load(name), profile)
    assert len(set(names_among(trials).values())) == len(trials)
