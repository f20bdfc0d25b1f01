import numpy as np
import pytest

from fedcome_ray import datasets
from fedcome_ray.datasets import packed, sources
from fedcome_ray.errors import DataError
from fedcome_ray.experiments.trial import identified, parse_trial
from tests.unit.datasets.files import femnist_columns, leaf_images, published


def test_writers_are_sorted_and_joined_by_id_whatever_the_files(leaf_folder) -> None:
    population = datasets.load(datasets.Femnist(), leaf_folder)
    assert population.train.sizes.tolist() == [1, 2, 3]  # f03, f11, f20
    assert population.train.examples.y.tolist() == [61, 5, 6, 1, 2, 3]
    assert population.test.examples.y.tolist() == [8, 7, 9, 10]
    assert population.feature_shape == (1, 28, 28)
    assert population.num_classes == 62


def test_the_number_of_writers_is_said(leaf_folder, caplog) -> None:
    with caplog.at_level("INFO"):
        datasets.load(datasets.Femnist(), leaf_folder)
    assert "6 training and 4 test examples of 3 writers (the paper has 196)" in caplog.text


def test_images_are_neither_rounded_nor_transposed(leaf_folder) -> None:
    arrays = sources.open_arrays(published("femnist"), leaf_folder)
    assert np.array_equal(arrays.train.x[0, 0], leaf_images("f03", 1)[0])


def test_the_packed_form_equals_the_json_files(leaf_folder) -> None:
    decoded = packed.checked(
        published("femnist"), published("femnist").originals.read(leaf_folder), leaf_folder
    )
    sources.open_arrays(published("femnist"), leaf_folder)
    for first, second in zip(
        decoded, packed.verify(published("femnist"), leaf_folder), strict=True
    ):
        assert all(map(np.array_equal, first, second))


def test_the_first_writers_by_id_are_taken(leaf_folder) -> None:
    population = datasets.load(datasets.Femnist(num_clients=2), leaf_folder)
    assert population.train.examples.y.tolist() == [61, 5, 6]
    assert population.test.examples.y.tolist() == [8, 7]


def test_more_writers_than_there_are_is_an_error(leaf_folder) -> None:
    with pytest.raises(DataError, match=r"there are 3 writers .* asked for 4"):
        datasets.load(datasets.Femnist(num_clients=4), leaf_folder)


def import_writers(folder, num_writers: int) -> None:
    folder.mkdir()
    np.savez(folder / "femnist.npz", **femnist_columns(num_writers))
    sources.import_arrays(published("femnist"), folder / "femnist.npz", folder)


def test_other_writers_are_another_trial(tmp_path) -> None:
    few, many = tmp_path / "few", tmp_path / "many"
    import_writers(few, 2)
    import_writers(many, 4)
    trial = parse_trial({"data": {"dataset": "femnist"}, "model": {"name": "logistic"}})
    (of_few,), (of_many,) = (identified([trial], folder) for folder in (few, many))
    assert of_few.key != of_many.key
    assert identified([trial], few)[0].key == of_few.key
    assert identified([of_few], few) == [of_few]
    datasets.load(of_few.data, few)
    with pytest.raises(DataError, match=r"data\.sha256: the files of femnist .* are not those"):
        datasets.load(of_few.data, many)


def test_a_trial_without_files_is_left_as_it_was_written(tmp_path) -> None:
    trial = parse_trial({"data": {"dataset": "femnist"}, "model": {"name": "logistic"}})
    assert identified([trial], tmp_path) == [trial]


def test_a_dataset_that_is_one_published_constant_needs_no_digest() -> None:
    names = {name for name, one in datasets.with_files().items() if one.sha256 is None}
    varying = {name for name in datasets.with_files() if is_varying(name)}
    assert names == varying == {"cifar100", "femnist", "shakespeare"}


def is_varying(name: str) -> bool:
    return "sha256" in datasets.REGISTRY[name].config.model_fields
