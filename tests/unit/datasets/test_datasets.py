import time
import tracemalloc
from itertools import pairwise

import numpy as np
import pytest

from fedcome_ray import datasets
from fedcome_ray.datasets import sources
from fedcome_ray.datasets.partition import ClassesPerClient, Ring2, Shards
from fedcome_ray.datasets.published import FACTS
from fedcome_ray.errors import ConfigError, DataError
from fedcome_ray.experiments.trial import parse_trial


def sizes(population):
    return datasets.Description(
        population.feature_shape,
        population.num_classes,
        len(population.train.order),
        len(population.test.order),
        population.num_clients,
    )


@pytest.mark.parametrize("name", ["digits", "synthetic"])
def test_a_description_tells_what_will_be_loaded(name):
    config = datasets.parse(name)
    assert datasets.describe(config) == sizes(datasets.load(config))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mnist", ((1, 28, 28), 10, 60_000, 10_000, 100)),
        ("cifar10", ((3, 32, 32), 10, 50_000, 10_000, 100)),
        ("cifar100", ((3, 32, 32), 100, 50_000, 10_000, 100)),
        ("femnist", ((1, 28, 28), 62, 36_692, 4_178, 196)),
    ],
)
def test_published_datasets_are_described_as_in_the_paper(name, expected):
    assert datasets.describe(datasets.parse(name)) == expected


def test_a_part_of_femnist_is_described_in_proportion():
    assert datasets.describe(datasets.Femnist(num_clients=98))[2:] == (18_346, 2_089, 98)


def test_defaults_are_the_papers_partitions():
    assert datasets.Mnist().partition == Shards(per_client=2)
    assert datasets.Cifar10().partition == ClassesPerClient(classes=2)
    assert datasets.Cifar100().partition == Ring2()


def test_partition_settings_without_a_name_are_those_of_the_default():
    data = parse_trial({"data": {"dataset": "cifar10", "partition": {"classes": 3}}}).data
    assert data.partition == ClassesPerClient(classes=3)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"dataset": "cifar01"}, "data: unknown dataset `cifar01`; did you mean `cifar10`"),
        ({"dataset": "npz"}, "data: unknown dataset `npz`; .*npz:PATH"),
        ({"num_clients": 5}, "data: unknown dataset"),
        (7, "data: unknown dataset `7`"),
        ({"dataset": "npz:"}, "data.dataset: string should match"),
        ({"dataset": "mnist", "num_clients": 0}, "^data.num_clients: .* greater than 0, got `0`"),
        ({"dataset": "mnist", "partition": {"name": "ring2"}}, "data.partition: .*'ring2'"),
        (
            {"dataset": "cifar100", "num_clients": 50},
            "`ring2` makes 100 clients.* got num_clients 50",
        ),
        ({"dataset": "femnist", "partition": {"name": "iid"}}, "data.partition: there is no such"),
        (
            {"dataset": "digits", "test_split": "x"},
            "data.test_split: .*'natural' or 'label_matched'",
        ),
    ],
)
def test_wrong_settings_name_the_field_and_what_is_allowed(data, message):
    with pytest.raises(ConfigError, match=message):
        parse_trial({"data": data})


@pytest.mark.parametrize("name", [*datasets.BY_NAME, "npz:some/file.npz"])
def test_a_configuration_survives_being_written_down(name):
    trial = parse_trial({"data": {"dataset": name}})
    again = parse_trial(trial.model_dump(mode="json"))
    assert again.data == trial.data
    assert again.key == trial.key


def test_digits_are_shared_out_almost_evenly():
    population = datasets.load(datasets.Digits())
    assert population.train.sizes.min() >= 26
    assert population.train.sizes.max() <= 42
    assert 0 <= population.train.examples.x.min() <= population.train.examples.x.max() <= 1


def test_natural_test_sets_are_slices_in_the_datasets_order():
    test = datasets.load(datasets.Digits()).test
    assert test.order.tolist() == list(range(359))
    assert set(test.sizes.tolist()) == {7, 8}


def test_label_matched_test_sets_have_the_classes_of_the_training_sets():
    population = datasets.load(datasets.Digits(test_split="label_matched"))
    for client in range(population.num_clients):
        trained, tested = (
            set(side.examples.y[side.order[side.offsets[client] : side.offsets[client + 1]]])
            for side in (population.train, population.test)
        )
        assert tested <= trained
    assert sorted(population.test.order.tolist()) == list(range(359))


def test_the_data_seed_decides_the_partition():
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
def test_nobody_is_left_without_examples(config, message):
    with pytest.raises(DataError, match=message):
        datasets.load(config)


def test_synthetic_clients_differ_as_asked():
    """With alpha = beta = 0 all clients' inputs have mean 0; with beta = 5 their means differ."""

    def spread(beta):
        config = datasets.Synthetic(alpha=0, beta=beta, num_clients=50, examples_per_client=200)
        side = datasets.load(config).train
        means = np.add.reduceat(side.examples.x, side.offsets[:-1]) / side.sizes[:, None]
        return means.mean(axis=1).std()

    assert spread(0.0) < 0.3
    assert spread(5.0) > 3


def test_synthetic_inputs_have_the_published_variances():
    config = datasets.Synthetic(num_clients=20, examples_per_client=2000)
    side = datasets.load(config).train
    largest = int(side.sizes.argmax())
    own = side.examples.x[side.offsets[largest] : side.offsets[largest + 1]]
    assert np.allclose(own.var(axis=0), np.arange(1, 61) ** -1.2, rtol=0.25)


def test_synthetic_labels_are_those_of_one_linear_model_per_client():
    """A client's own examples are linearly separable; those of several clients are not."""
    from sklearn.linear_model import LogisticRegression

    config = datasets.Synthetic(
        alpha=0, beta=0, num_clients=4, examples_per_client=200, num_features=5, num_classes=2
    )
    side = datasets.load(config).train
    fit = LogisticRegression(C=1e6, max_iter=10_000)
    x, y = side.examples
    scores = [
        fit.fit(x[start:end], y[start:end]).score(x[start:end], y[start:end])
        for start, end in pairwise(side.offsets)
        if len(set(y[start:end])) == 2
    ]
    assert min(scores) > 0.99
    assert fit.fit(x, y).score(x, y) < 0.95


def test_synthetic_data_is_a_function_of_its_seed():
    first, again, other = (
        datasets.load(datasets.Synthetic(seed=seed, num_clients=10)) for seed in (1, 1, 2)
    )
    assert np.array_equal(first.train.examples.x, again.train.examples.x)
    assert np.array_equal(first.test.examples.y, again.test.examples.y)
    assert first.train.examples.x[0, 0] != other.train.examples.x[0, 0]


def test_many_synthetic_clients_cost_little_more_than_their_examples():
    config = datasets.Synthetic(num_clients=10_000, examples_per_client=20)
    tracemalloc.start()
    population = datasets.load(config)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    examples = population.train.examples.x.nbytes + population.test.examples.x.nbytes
    assert peak < 2 * examples


@pytest.mark.parametrize("name", FACTS)
def test_missing_data_says_what_how_and_where(tmp_path, name):
    config = datasets.parse(name)
    for use in (datasets.load, datasets.check_available):
        with pytest.raises(DataError) as error:
            use(config, tmp_path)
        text = str(error.value)
        for part in (name, str(tmp_path), "--data-dir", "FEDCOME_DATA_DIR", "--profile quick"):
            assert part in text
        assert f"fedcome_ray.data import {name}" in text


def test_bundled_data_is_always_available(tmp_path):
    datasets.check_available(datasets.Digits(), tmp_path / "nowhere")
    datasets.check_available(datasets.Synthetic(), tmp_path / "nowhere")


def test_the_data_folder_is_the_argument_or_the_environments_or_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDCOME_DATA_DIR", str(tmp_path / "environment"))
    assert sources.data_folder(tmp_path / "argument") == tmp_path / "argument"
    assert sources.data_folder(None) == tmp_path / "environment"
    monkeypatch.delenv("FEDCOME_DATA_DIR")
    assert "fedcome_ray" in str(sources.data_folder(None))


def test_a_data_folder_that_cannot_be_read_is_named(tmp_path):
    folder = tmp_path / "file"
    folder.touch()
    with pytest.raises(DataError, match=r"cannot read the data folder .*file: Not a directory"):
        datasets.load(datasets.Mnist(), folder)


@pytest.mark.real_data
def test_a_packed_mnist_is_loaded_in_less_than_two_seconds(real_data, tmp_path):
    (tmp_path / "MNIST").symlink_to(real_data / "MNIST")
    sources.open_arrays("mnist", tmp_path)
    start = time.perf_counter()
    datasets.load(datasets.Mnist(), tmp_path)
    assert time.perf_counter() - start < 2
