import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcome_ray import datasets
from fedcome_ray.data import main
from fedcome_ray.datasets import packed, shakespeare, sources
from fedcome_ray.errors import DataError
from tests.unit.datasets.files import published

# What the roles say; LEAF cuts it into texts of 80 characters and the one that follows.
SPEECHES = {
    "HAMLET_OPHELIA": "My lord, I have remembrances of yours\nThat I have longed long" * 3,
    "HAMLET_HAMLET": "No, not I; I never gave you aught. [Aside] Ha, ha! 'Are you fair?\n" * 3,
}


def cut(speech: str) -> dict[str, list[str]]:
    """As LEAF's preprocessing does it."""
    starts = range(len(speech) - 80)
    return {"x": [speech[i : i + 80] for i in starts], "y": [speech[i + 80] for i in starts]}


def write(folder: Path, side: str, users: dict[str, Any]) -> None:
    (folder / side).mkdir(parents=True, exist_ok=True)
    content = {"users": list(users), "num_samples": [], "hierarchies": [], "user_data": users}
    (folder / side / f"all_data_niid_2_keep_0_{side}_8.json").write_text(json.dumps(content))


@pytest.fixture
def leaf_folder(tmp_path) -> Path:
    folder = tmp_path / "shakespeare"
    write(folder, "train", {role: cut(speech) for role, speech in SPEECHES.items()})
    write(folder, "test", {role: cut(speech[:90]) for role, speech in SPEECHES.items()})
    return tmp_path


def test_tokens_read_aloud_are_the_speeches(leaf_folder) -> None:
    population = datasets.load(datasets.Shakespeare(), leaf_folder)
    train = population.train
    assert train.examples.x.dtype == np.int64
    assert train.examples.x.shape[1:] == population.feature_shape == (80,)
    assert population.num_classes == 80
    for client, role in enumerate(sorted(SPEECHES)):  # HAMLET before OPHELIA
        start, end = train.offsets[client : client + 2]
        rows = train.order[start:end]
        first = "".join(shakespeare.VOCABULARY[token] for token in train.examples.x[rows[0]])
        rest = "".join(shakespeare.VOCABULARY[token] for token in train.examples.y[rows])
        assert first + rest == SPEECHES[role]
        # Each text is the one before, a character further.
        assert np.array_equal(train.examples.x[rows[1:], -1], train.examples.y[rows[:-1]])


def test_the_vocabulary_is_leafs() -> None:
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    assert len(set(shakespeare.VOCABULARY)) == 80
    assert set(shakespeare.VOCABULARY) == {
        *letters,
        *letters.lower(),
        *"0123456789",
        *"\n !\"&'(),-.:;>?[]}",
    }
    assert list(shakespeare.VOCABULARY) == sorted(shakespeare.VOCABULARY)


def test_import_packs_a_folder_of_leaf(leaf_folder, tmp_path, capsys) -> None:
    there, folder = str(leaf_folder / "shakespeare"), tmp_path / "packed"
    assert main(["import", "shakespeare", "--from", there, "--data-dir", str(folder)]) == 0
    assert "of 2 roles (LEAF has 1,129 in all)" in capsys.readouterr().out
    arrays = packed.verify(published("shakespeare"), folder)
    from_packed = datasets.load(datasets.Shakespeare(), folder)
    from_leaf = datasets.load(datasets.Shakespeare(), leaf_folder)
    assert arrays.train.x.dtype == np.uint8  # an eighth of what models are given
    assert np.array_equal(from_packed.train.examples.x, from_leaf.train.examples.x)
    assert np.array_equal(from_packed.test.examples.y, from_leaf.test.examples.y)


def test_the_first_roles_are_taken(leaf_folder) -> None:
    assert datasets.load(datasets.Shakespeare(num_clients=1), leaf_folder).num_clients == 1
    with pytest.raises(DataError, match=r"data\.num_clients: there are 2 roles .* asked for 3"):
        datasets.load(datasets.Shakespeare(num_clients=3), leaf_folder)


def test_the_folders_of_another_dataset_are_not_taken_for_it(tmp_path) -> None:
    write(tmp_path, "train", {"f01": {"x": [], "y": []}})
    assert sources.state(published("shakespeare"), tmp_path) == "missing"


@pytest.mark.parametrize(
    ("user", "message"),
    [
        ({"x": ["a" * 79], "y": ["b"]}, "texts of 80 characters and one that follows, got 79"),
        ({"x": ["a" * 80], "y": ["bc"]}, "one that follows, got 2"),
        ({"x": ["a" * 80], "y": []}, "has 1 texts, 0 characters that follow"),
        ({"x": [], "y": []}, "has 0 texts"),
        (
            {"x": ["a" * 79 + "é"], "y": ["b"]},
            "has the character 'é', which is not among LEAF's 80",
        ),
        ({"x": ["a" * 80], "y": ["{"]}, "has the character '{'"),
        ({"x": ["a" * 79 + "\ud800"], "y": ["b"]}, r"has the character '\\ud800'"),
        ({"x": [[0.5] * 80], "y": [1]}, "has no texts of 80 characters"),
        ({"y": ["b"]}, "has no texts of 80 characters"),
        (None, "has no texts of 80 characters"),
    ],
)
def test_unfit_texts_are_named(leaf_folder, user, message) -> None:
    write(leaf_folder / "shakespeare", "train", {"MACBETH": user})
    with pytest.raises(DataError, match=rf"json: user MACBETH .*{message}"):
        datasets.load(datasets.Shakespeare(), leaf_folder)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.full((2, 80), 80, np.uint8), "tokens of x_train must be from 0 to 79, got 80"),
        (np.zeros((2, 79), np.uint8), r"texts of 80 tokens, as bytes .* got uint8 of \(2, 79\)"),
        (np.zeros((2, 80)), "texts of 80 tokens, as bytes .* got float64"),
    ],
)
def test_unfit_arrays_are_named(tmp_path, x, message) -> None:
    numbers = np.array([0, 1])
    sides = {f"{key}_{side}": numbers for key in ("y", "client") for side in ("train", "test")}
    np.savez(tmp_path / "mine.npz", x_train=x, x_test=np.zeros((2, 80), np.uint8), **sides)
    with pytest.raises(DataError, match=message):
        sources.import_arrays(published("shakespeare"), tmp_path / "mine.npz", tmp_path)
