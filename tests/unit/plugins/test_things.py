"""Methods, models, samplers and datasets of users, told apart by what they are."""

import numpy as np
import pytest
import torch

from fedcome_ray import datasets, methods, models, samplers
from fedcome_ray.errors import UserError
from fedcome_ray.experiments.trial import parse_trial
from fedcome_ray.plugins import load_plugins
from fedcome_ray.plugins.sampler import rehearse
from fedcome_ray.plugins.things import KINDS
from fedcome_ray.trials.run import check_fits
from tests.unit.plugins.conftest import Write

HEAD = """\
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import nn

from fedcome_ray.plugins import *
"""
METHOD = """
class Plain(Hyperparameters):
    name: Literal["plain"] = "plain"


def build(hp):
    return Method(
        parts.only_params, parts.stateless, parts.send_params, parts.uncorrected, parts.keep,
        parts.average,
    )
"""
MODEL = """
class Tiny(Hyperparameters):
    name: Literal["tiny"] = "tiny"
    hidden: int = 8


def build(config, feature_shape, num_classes):
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, config.hidden),
        nn.ReLU(), nn.Linear(config.hidden, num_classes),
    )
"""
SAMPLER = """
class Turns(Hyperparameters):
    name: Literal["turns"] = "turns"


class State(NamedTuple):
    num_clients: int
    counts: object


def build(hp):
    def init(num_clients):
        return State(num_clients, np.zeros(num_clients))

    def sample(state, size, rng):
        {before}
        return {sample}

    def learn(state, cohort, report):
        counts = state.counts.copy()
        counts[list(cohort)] += 1
        return {learn}

    return Sampler(init, sample, learn)
"""
TURNS = {
    "before": "tired = state.counts + rng.random(state.num_clients)",
    "sample": "cohort_of(np.argsort(tired)[:size])",
    "learn": "State(state.num_clients, counts)",
}
DATASET = """
class Blobs(DatasetSettings):
    dataset: Literal["blobs"] = "blobs"
    num_clients: int = 4


def build(config, data_dir):
    y = np.arange(10 * config.num_clients) % 2
    x = (y[:, None] + np.zeros(3)).astype({dtype})
    side = split_in_order(Examples(x, {labels}), np.full(config.num_clients, 10))
    return {population}
"""
BLOBS = {"dtype": "np.float32", "labels": "y", "population": "Population(side, side, 2)"}


def sampler(**changes: str) -> str:
    return HEAD + SAMPLER.format(**{**TURNS, **changes})


def dataset(**changes: str) -> str:
    return HEAD + DATASET.format(**{**BLOBS, **changes})


@pytest.mark.parametrize(
    ("text", "registry", "name", "setting", "digest"),
    [
        (HEAD + METHOD, methods.REGISTRY, "plain", {"method": {"name": "plain"}}, "plugin"),
        (HEAD + MODEL, models.REGISTRY, "tiny", {"model": {"name": "tiny"}}, "model_plugin"),
        (sampler(), samplers.REGISTRY, "turns", {"sampler": {"name": "turns"}}, "sampler_plugin"),
        (dataset(), datasets.REGISTRY, "blobs", {"data": {"dataset": "blobs"}}, "data_plugin"),
    ],
)
def test_a_file_with_one_thing_is_told_by_what_it_builds(
    write: Write, text: str, registry: dict[str, object], name: str, setting: object, digest: str
) -> None:
    before = {id(kind.registry): set(kind.registry) for kind in KINDS.values()}
    load_plugins([write(text, "own.py")])
    assert set(registry) - before.pop(id(registry)) == {name}
    assert all(set(kind.registry) == before.get(id(kind.registry), set(registry))
               for kind in KINDS.values())  # fmt: skip
    trial = parse_trial(setting)  # type: ignore[arg-type]
    filled = {field for field in trial.model_dump() if field.endswith("plugin")
              and getattr(trial, field) is not None}  # fmt: skip
    assert filled == {digest}
    check_fits(trial, datasets.load(trial.data))


def test_several_things_in_one_file_are_told_by_their_entries(write: Write) -> None:
    renamed = [
        METHOD.replace("def build", "def build_plain"),
        MODEL.replace("def build", "def build_tiny"),
        SAMPLER.format(**TURNS).replace("def build", "def build_turns"),
        DATASET.format(**BLOBS).replace("def build", "def build_blobs"),
    ]
    entries = (
        'A = MethodEntry(Plain, build_plain)\nB = ModelEntry(Tiny, build_tiny, "so small")\n'
        "C = SamplerEntry(Turns, build_turns)\nD = Dataset(config=Blobs, build=build_blobs)\n"
    )
    load_plugins([write(HEAD + "".join(renamed) + entries, "own.py")])
    assert models.REGISTRY["tiny"].label == "so small"
    assert samplers.REGISTRY["turns"].label == "Turns"
    codes = {registry[name].code.digest for registry, name in (
        (methods.REGISTRY, "plain"), (models.REGISTRY, "tiny"), (samplers.REGISTRY, "turns"),
        (datasets.REGISTRY, "blobs"),
    )}  # fmt: skip
    assert len(codes) == 1


def test_only_what_a_trial_uses_is_part_of_its_key(write: Write) -> None:
    plain = parse_trial({})
    load_plugins([write(HEAD + METHOD, "own.py"), write(HEAD + MODEL, "nets.py")])
    assert parse_trial({}).key == plain.key
    both = parse_trial({"method": {"name": "plain"}, "model": {"name": "tiny"}})
    assert len({both.plugin, both.model_plugin, None}) == 3


def test_a_users_dataset_describes_itself(write: Write) -> None:
    load_plugins([write(dataset(), "own.py")])
    found = datasets.describe(datasets.parse("blobs"))
    assert found == ((3,), 2, 40, 40, 4, np.dtype(np.float32), False, False)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"sample": "(0, 1)"}, "in sample: returned 2 clients, expected 3"),
        ({"sample": "tuple(range(size, 0, -1))"}, "different clients in increasing order"),
        ({"sample": "(1,) * size"}, "different clients in increasing order"),
        ({"sample": "tuple(range(9 - size, 9))"}, "returned client 8, of 6 clients"),
        ({"sample": "np.arange(size)"}, "a `ndarray`, expected a tuple of integers; `cohort_of`"),
        (
            {"before": "tired = np.random.random(6)"},
            "in sample: returned something else when it was called with the same again",
        ),
        (
            {"before": "state.counts[0] += 1; tired = rng.random(6)"},
            "in sample: changed `state` in place",
        ),
        ({"learn": "state.num_clients"}, "in learn: returned a `int`, expected a `State`"),
    ],
)
def test_a_sampler_that_breaks_its_contract_is_refused(
    write: Write, changes: dict[str, str], says: str
) -> None:
    with pytest.raises(UserError, match=r"--plugin .*own\.py: own\.py:\d+, ") as raised:
        load_plugins([write(sampler(**changes), "own.py")])
    assert says in str(raised.value)
    assert "turns" not in samplers.REGISTRY


@pytest.mark.parametrize("name", samplers.REGISTRY)
def test_our_own_samplers_keep_to_the_contract(name: str) -> None:
    entry = samplers.REGISTRY[name]
    rehearse(entry.build(entry.config()))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"population": "None"}, "returned nothing, expected a `Population`"),
        ({"dtype": "float"}, "training examples of float64, expected float32, or integers"),
        ({"labels": "y + 1"}, "with labels from 1 to 2, expected 0 to 1"),
        ({"labels": "y.astype(float)"}, "with labels float64 of (40,), expected int64"),
        ({"population": "1 / 0"}, "ZeroDivisionError: division by zero"),
    ],
)
def test_a_dataset_that_is_wrong_is_refused_when_it_is_loaded(
    write: Write, changes: dict[str, str], says: str
) -> None:
    load_plugins([write(dataset(**changes), "own.py")])
    with pytest.raises(UserError, match=r"^own\.py:\d+, in build: ") as raised:
        datasets.load(datasets.parse("blobs"))
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("num_classes),", "num_classes + 1),"), r"gives shape \[2, 11\] .* expected \[2, 10\]"),
        (("nn.Linear(64", "nn.Linear(63"), "cannot take the examples of this dataset.* of 1x8x8"),
        (("nn.ReLU()", "nn.BatchNorm1d(8)"), "BatchNorm .*GroupNorm"),
        (("return nn.Sequential(", "return None; print("), "in build: returned nothing, expected"),
        (("nn.ReLU()", "1 / 0"), r"own\.py:\d+, in build: ZeroDivisionError"),
    ],
)
def test_a_model_that_does_not_fit_is_refused_before_training(
    write: Write, change: tuple[str, str], says: str
) -> None:
    load_plugins([write(HEAD + MODEL.replace(*change), "own.py")])
    trial = parse_trial({"model": {"name": "tiny"}})
    with pytest.raises(UserError, match=says):
        check_fits(trial, datasets.load(trial.data))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (METHOD.replace("build(hp)", "build()"), "in build: must take settings"),
        (
            MODEL.replace("config, feature_shape, num_classes", "config, shape"),
            "in build: must take settings",
        ),
        (MODEL + "ENTRY = MethodEntry(Tiny, build)", "to make the method that `Tiny` describes"),
        (METHOD.replace('"plain"\n', '"plain"\n    mu: float\n'), "must have valid defaults.*mu"),
        (
            METHOD.replace('"plain"\n', '"plain"\n    mu: list[int] = [1]\n'),
            r"declare lists as `tuple\[int, \.\.\.\]`",
        ),
    ],
)
def test_what_cannot_be_built_is_refused(write: Write, text: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        load_plugins([write(HEAD + text, "own.py")])


def test_a_users_model_learns_in_a_round(write: Write) -> None:
    load_plugins([write(HEAD + MODEL, "own.py")])
    trial = parse_trial({"model": {"name": "tiny", "hidden": 4}})
    model = models.build(trial.model, (1, 8, 8), 10)
    assert model.dim == 64 * 4 + 4 + 4 * 10 + 10
    assert model.logits(model.init(0), torch.zeros(3, 1, 8, 8)).shape == (3, 10)
