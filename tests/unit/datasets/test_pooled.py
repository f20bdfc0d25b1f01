import numpy as np
import pytest

from fedcome_ray import datasets
from fedcome_ray.datasets.partitions import ClassesPerClient
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
