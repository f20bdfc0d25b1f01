import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fedcome_ray import datasets
from fedcome_ray.datasets import parse
from fedcome_ray.datasets.partitions import ClassesPerClient
from fedcome_ray.datasets.pooled import held_out
from fedcome_ray.errors import ConfigError, DataError
from fedcome_ray.experiments.trial import parse_trial


def test_partition_settings_without_a_name_are_those_of_the_default() -> None:
    data = parse_trial({"data": {"dataset": "cifar10", "partition": {"classes": 3}}}).data
    assert data.partition == ClassesPerClient(classes=3)


@pytest.mark.parametrize("name", ["ring2", "iid5"])
@pytest.mark.parametrize("dataset", ["digits", "mnist", "cifar10"])
def test_superclasses_are_asked_of_a_dataset_that_has_them(dataset, name) -> None:
    with pytest.raises(ConfigError) as error:
        parse_trial({"data": {"dataset": dataset, "partition": {"name": name}}})
    text = str(error.value)
    assert text.startswith("data.partition: `name` needs superclasses")
    assert f"got `{name}`" in text
    assert text.endswith("allowed: classes_per_client, dirichlet, iid, shards")


@pytest.mark.parametrize(
    ("partition", "message"),
    [
        ({"name": "dirchlet"}, "data.partition: unknown partition `dirchlet`; did you mean `dir"),
        ({"classes": 0}, "data.partition.classes: .* greater than 0, got `0`"),
        ({"name": "iid", "alpha": 1}, "data.partition.alpha: iid has no such setting"),
        ("iid", "data.partition: a partition is given by its `name` and its settings"),
    ],
)
def test_wrong_partitions_name_the_field_and_what_is_allowed(partition, message) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_trial({"data": {"dataset": "digits", "partition": partition}})


def test_natural_test_sets_are_slices_in_the_datasets_order() -> None:
    test = datasets.load(datasets.Digits()).test
    assert test.order.tolist() == list(range(359))
    assert set(test.sizes.tolist()) == {7, 8}


def test_label_matched_test_sets_have_the_classes_of_the_training_sets() -> None:
    population = datasets.load(datasets.Digits(test_split="label_matched"))
    for client in range(population.num_clients):
        trained, tested = (
            set(side.examples.y[side.order[side.offsets[client] : side.offsets[client + 1]]])
            for side in (population.train, population.test)
        )
        assert tested <= trained
    assert sorted(population.test.order.tolist()) == list(range(359))


def test_the_data_seed_decides_the_partition() -> None:
    first, again, other = (
        datasets.load(datasets.Digits(seed=seed)).train.order for seed in (1, 1, 2)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (datasets.Digits(num_clients=500), "client 359 would have no test examples"),
        (datasets.Digits(num_clients=2000), "2000 pieces|2000 clients cannot share 1438"),
        (
            datasets.Digits(num_clients=300, test_split="label_matched"),
            "would have no test examples .*label_matched",
        ),
    ],
)
def test_nobody_is_left_without_examples(config, message) -> None:
    with pytest.raises(DataError, match=message):
        datasets.load(config)


def test_validation_examples_are_training_examples_that_nobody_trains_on() -> None:
    plain = datasets.load(parse({"dataset": "digits"}))
    held = datasets.load(parse({"dataset": "digits", "validation": 0.2}))
    assert held.test.examples is held.train.examples  # the test examples are not touched
    assert np.array_equal(held.test.examples.x, plain.train.examples.x)
    together = np.concatenate([held.train.order, held.test.order])
    assert np.array_equal(np.sort(together), np.arange(len(plain.train.examples.y)))
    assert len(held.test.order) == int(0.2 * len(together))
    described = datasets.describe(parse({"dataset": "digits", "validation": 0.2}))
    assert (described.num_train, described.num_test) == tuple(
        len(side.order) for side in (held.train, held.test)
    )


@pytest.mark.parametrize("split", ["natural", "label_matched"])
def test_validation_examples_are_dealt_like_test_examples(split: str) -> None:
    config = parse({"dataset": "digits", "validation": 0.3, "test_split": split, "num_clients": 10})
    train, test, _ = datasets.load(config)
    for client in range(10):
        own, tested = (
            set(side.examples.y[side.order[side.offsets[client] : side.offsets[client + 1]]])
            for side in (train, test)
        )
        assert tested == own if split == "label_matched" else len(tested) > len(own)


@given(num=st.integers(1, 500), share=st.floats(0.001, 0.999))
def test_held_out_examples_are_evenly_spread(num: int, share: float) -> None:
    chosen = np.cumsum(held_out(num, share))
    assert np.abs(chosen - share * np.arange(1, num + 1)).max() <= 1


@pytest.mark.parametrize("share", [0, 1, -0.1, "half"])
def test_a_share_outside_of_zero_and_one_is_refused(share: object) -> None:
    with pytest.raises(ValidationError, match="validation"):
        parse({"dataset": "digits", "validation": share})
