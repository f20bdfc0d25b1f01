import subprocess
import sys

import numpy as np
import pytest

from fedcome_ray import datasets
from fedcome_ray.datasets.partitions import ClassesPerClient, Ring2, SortedShards
from fedcome_ray.datasets.population import describe
from fedcome_ray.errors import ConfigError, DataError
from fedcome_ray.experiments.trial import parse_trial


@pytest.mark.parametrize("name", ["digits", "synthetic"])
def test_a_description_tells_what_will_be_loaded(name) -> None:
    config = datasets.parse(name)
    assert datasets.describe(config) == describe(datasets.load(config))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mnist", ((1, 28, 28), 10, 60_000, 10_000, 100)),
        ("cifar10", ((3, 32, 32), 10, 50_000, 10_000, 100)),
        ("cifar100", ((3, 32, 32), 100, 50_000, 10_000, 100)),
        ("femnist", ((1, 28, 28), 62, 36_692, 4_178, 196)),
        ("shakespeare", ((80,), 80, 3_380_926, 845_232, 1_129)),
    ],
)
def test_published_datasets_are_described_as_published(name, expected) -> None:
    description = datasets.describe(datasets.parse(name))
    is_text = name == "shakespeare"
    assert description == (*expected, np.int64 if is_text else np.float32, not is_text, False)


def test_a_part_of_femnist_is_described_in_proportion() -> None:
    assert datasets.describe(datasets.Femnist(num_clients=98))[2:5] == (18_346, 2_089, 98)


def test_defaults_are_the_papers_partitions() -> None:
    assert datasets.Mnist().partition == SortedShards(per_client=2)
    assert datasets.Cifar10().partition == ClassesPerClient(classes=2)
    assert datasets.Cifar100().partition == Ring2()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"dataset": "cifar01"}, "data: unknown dataset `cifar01`; did you mean `cifar10`"),
        ({"dataset": "npz"}, "data: unknown dataset `npz`; .*npz:PATH"),
        ({"num_clients": 5}, "data: a dataset is given by `data.dataset`"),
        (7, "data: unknown dataset `7`"),
        ({"dataset": "npz:"}, "data.dataset: string should match"),
        ({"dataset": "mnist", "num_clients": 0}, "^data.num_clients: .* greater than 0, got `0`"),
        (
            {"dataset": "mnist", "partition": {"name": "ring2"}},
            "data.partition: .*, got `ring2`; allowed: classes_per_client",
        ),
        (
            {"dataset": "cifar100", "num_clients": 50},
            "`ring2` makes 100 clients.* got num_clients 50",
        ),
        ({"dataset": "femnist", "partition": {"name": "iid"}}, "data.partition: femnist has no"),
        (
            {"dataset": "digits", "test_split": "x"},
            "data.test_split: .*'natural' or 'label_matched'",
        ),
    ],
)
def test_wrong_settings_name_the_field_and_what_is_allowed(data, message) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_trial({"data": data})


@pytest.mark.parametrize("name", [*datasets.REGISTRY, "npz:some/file.npz"])
def test_a_configuration_survives_being_written_down(name) -> None:
    trial = parse_trial({"data": {"dataset": name}})
    again = parse_trial(trial.model_dump(mode="json"))
    assert again.data == trial.data
    assert again.key == trial.key


@pytest.mark.parametrize("name", datasets.with_files())
def test_missing_data_says_what_how_and_where(tmp_path, name) -> None:
    config = datasets.parse(name)
    for use in (datasets.load, datasets.check_available):
        with pytest.raises(DataError) as error:
            use(config, tmp_path)
        text = str(error.value)
        for part in (name, str(tmp_path), "--data-dir", "FEDCOME_DATA_DIR", "--profile quick"):
            assert part in text
        assert f"fedcome_ray.data import {name}" in text


def test_bundled_data_is_always_available(tmp_path) -> None:
    datasets.check_available(datasets.Digits(), tmp_path / "nowhere")
    datasets.check_available(datasets.Synthetic(), tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("digits", "digits"),
        ("mnist", "MNIST"),
        ("cifar10", "CIFAR-10"),
        ("cifar100", "CIFAR-100"),
        ("femnist", "FEMNIST"),
        ("shakespeare", "Shakespeare"),
        ("synthetic", "synthetic"),
    ],
)
def test_datasets_have_names_for_people(name, label) -> None:
    assert datasets.REGISTRY[name].label == label


def test_the_fields_of_the_settings_keep_their_order() -> None:
    pooled = ["num_clients", "partition", "test_split", "seed", "dataset", "validation"]
    assert list(datasets.Digits().model_dump()) == pooled
    assert list(datasets.Mnist().model_dump()) == pooled


def test_datasets_know_nothing_of_the_rest_and_are_imported_fast() -> None:
    code = "import fedcome_ray.datasets, sys; print(*sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    loaded = set(answer.stdout.split())
    assert "fedcome_ray.datasets" in loaded
    assert not {"torch", "torchvision", "sklearn", "matplotlib", "ray", "mlflow"} & loaded
    rooms = {name.split(".")[1] for name in loaded if name.startswith("fedcome_ray.")}
    assert rooms == {"datasets", "errors", "hyperparameters", "numerics", "registry", "version"}
