import csv
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from fedcome_ray.datasets.own.taking import Taken, Wishes, take
from fedcome_ray.errors import DataError

UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.integers(20, 90, 60),
            "bmi": rng.normal(25, 4, 60),
            "ward": rng.choice(["surgery", "icu", "er"], 60),
            "town": rng.choice(["Basel", "Bern", "Zug"], 60),
            "outcome": rng.choice(["well", "ill"], 60),
            "side": np.where(np.arange(60) % 4 == 0, "test", "train"),
        }
    )


def taken(folder: Path, frame: pd.DataFrame, test: pd.DataFrame | None = None, **wishes) -> Taken:
    frame.to_csv(folder / "mine.csv", index=False)
    if test is not None:
        test.to_csv(folder / "test.csv", index=False)
        wishes["test"] = folder / "test.csv"
    return take("csv", folder / "mine.csv", Wishes(**wishes))


def plain(**wishes) -> dict[str, Any]:
    return {"label": "outcome", "client": "town", "drop": ["ward", "side"], **wishes}


def test_a_column_says_what_is_for_testing(frame, tmp_path) -> None:
    arrays = taken(
        tmp_path, frame, label="outcome", client="town", drop=["ward"], split="side"
    ).arrays
    for side in ("train", "test"):
        own = frame[frame.side == side]
        expected = own[["age", "bmi"]].to_numpy(np.float32)
        assert np.array_equal(arrays[f"x_{side}"], expected)
        assert arrays["class_names"][arrays[f"y_{side}"]].tolist() == own.outcome.tolist()
        assert arrays["client_names"][arrays[f"client_{side}"]].tolist() == own.town.tolist()
    assert arrays["feature_names"].tolist() == ["age", "bmi"]
    assert arrays["class_names"].tolist() == ["ill", "well"]
    assert arrays["client_names"].tolist() == ["Basel", "Bern", "Zug"]


def test_a_file_of_its_own_is_for_testing_whatever_the_order_of_its_columns(
    frame, tmp_path
) -> None:
    test = frame.iloc[:10][list(reversed(frame.columns))].assign(age=30.5)  # no longer whole
    arrays = taken(tmp_path, frame.iloc[10:], test, **plain()).arrays
    assert np.array_equal(arrays["x_train"], frame.iloc[10:][["age", "bmi"]].to_numpy(np.float32))
    assert np.array_equal(arrays["x_test"], test[["age", "bmi"]].to_numpy(np.float32))


def test_without_clients_there_are_none(frame, tmp_path) -> None:
    arrays = taken(
        tmp_path, frame, **plain(client=None, drop=["ward", "side", "town"], test_share=0.5)
    )
    assert not [name for name in arrays.arrays if name.startswith("client")]
    assert len(arrays.arrays["y_test"]) == 30


@UNTIMED
@given(
    sizes=st.lists(st.integers(2, 30), min_size=1, max_size=6),
    share=st.floats(0.01, 0.99),
    seed=st.integers(0, 1000),
)
def test_every_client_gives_its_share_to_the_tests(tmp_path, sizes, share, seed) -> None:
    owners = np.repeat(np.arange(len(sizes)), sizes)
    rows = list(enumerate(np.random.default_rng(seed).permutation(owners)))
    with (tmp_path / "mine.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("x", "who", "y"), *((x + 0.5, who, 0) for x, who in rows)])
    wishes = Wishes(label="y", client="who", test_share=share, seed=seed)
    arrays = take("csv", tmp_path / "mine.csv", wishes).arrays
    train, test = arrays["x_train"][:, 0], arrays["x_test"][:, 0]
    assert sorted([*train, *test]) == [x + 0.5 for x, _ in rows]  # each row once
    assert {x + 0.5: who for x, who in rows} == {
        **dict(zip(train, arrays["client_train"], strict=True)),
        **dict(zip(test, arrays["client_test"], strict=True)),
    }
    drawn = Counter(arrays["client_test"].tolist())
    for client, size in enumerate(sizes):
        assert 1 <= drawn[client] < size
        assert abs(drawn[client] - share * size) <= 1
    again = take("csv", tmp_path / "mine.csv", wishes).arrays
    assert np.array_equal(again["x_test"], arrays["x_test"])


def test_a_clients_draw_does_not_depend_on_the_others(frame, tmp_path) -> None:
    frame = frame.sort_values("town", kind="stable")
    wishes = plain(test_share=0.3, seed=5)
    together = taken(tmp_path, frame, **wishes).arrays
    alone = taken(tmp_path, frame[frame.town == "Basel"], **wishes).arrays
    of_basel = together["x_test"][together["client_test"] == 0]
    assert np.array_equal(of_basel, alone["x_test"])
    other = taken(tmp_path, frame, **plain(test_share=0.3, seed=6)).arrays
    assert not np.array_equal(other["x_test"], together["x_test"])


def test_all_rows_are_equally_likely_to_be_drawn(tmp_path) -> None:
    frame = pd.DataFrame({"x": np.arange(10) + 0.5, "y": 0})
    counts: Counter[float] = Counter()
    for seed in range(300):
        counts.update(
            taken(tmp_path, frame, label="y", test_share=0.2, seed=seed).arrays["x_test"][:, 0]
        )
    expected, spread = 60, (300 * 0.2 * 0.8) ** 0.5
    assert set(counts) == set(frame.x)
    assert all(abs(count - expected) < 5 * spread for count in counts.values())


def test_categories_become_features_as_scikit_learn_makes_them(frame, tmp_path) -> None:
    arrays = taken(
        tmp_path,
        frame,
        label="outcome",
        drop=["age", "bmi", "town"],
        one_hot=["ward"],
        split="side",
    ).arrays
    encoder = OneHotEncoder(sparse_output=False).fit(frame[["ward"]])
    own = frame[frame.side == "train"][["ward"]]
    assert np.array_equal(arrays["x_train"], encoder.transform(own))
    assert arrays["feature_names"].tolist() == ["ward=er", "ward=icu", "ward=surgery"]


def test_features_are_normalised_as_scikit_learn_does_it(frame, tmp_path) -> None:
    frame["same"] = 3.0
    arrays = taken(
        tmp_path, frame, label="outcome", drop=["ward", "town"], split="side", normalise=True
    ).arrays
    scaler = StandardScaler().fit(frame[frame.side == "train"][["age", "bmi", "same"]])
    for side in ("train", "test"):
        expected = scaler.transform(frame[frame.side == side][["age", "bmi", "same"]])
        assert np.allclose(arrays[f"x_{side}"], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("labels", "relabel", "expected", "names"),
    [
        ([1, 3, 1, 3], False, [1, 3, 1, 3], ["0", "1", "2", "3"]),
        ([1, 3, 1, 3], True, [0, 1, 0, 1], ["1", "3"]),
        ([-1, 1, -1, 1], True, [0, 1, 0, 1], ["-1", "1"]),
        ([1.0, 0.0, 1.0, 0.0], False, [1, 0, 1, 0], ["0", "1"]),
        ([True, False, True, False], False, [1, 0, 1, 0], ["0", "1"]),
        (["b", "a", "b", "a"], False, [1, 0, 1, 0], ["a", "b"]),
    ],
)
def test_labels_are_numbered(tmp_path, labels, relabel, expected, names) -> None:
    frame = pd.DataFrame({"x": np.arange(8) ** 2, "y": labels * 2, "s": ["train", "test"] * 4})
    frame = frame.sort_values("s", ascending=False, kind="stable").assign(y=labels * 2)
    arrays = taken(tmp_path, frame, label="y", split="s", relabel=relabel).arrays
    assert arrays["y_train"].tolist() == arrays["y_test"].tolist() == expected
    assert arrays["class_names"].tolist() == names


def test_clients_with_too_little_are_left_out_if_that_is_wished(frame, tmp_path) -> None:
    alone = frame.iloc[:1].assign(town="Chur")
    frame = pd.concat([alone, frame], ignore_index=True)
    with pytest.raises(DataError) as error:
        taken(tmp_path, frame, **plain(test_share=0.2))
    assert "--client: `Chur` has 1 training and 0 test examples (1 of 4 clients" in str(error.value)
    assert "--min-examples 1" in str(error.value)
    arrays, remarks = taken(tmp_path, frame, **plain(test_share=0.2, min_examples=1))
    assert arrays["client_names"].tolist() == ["Basel", "Bern", "Zug"]
    assert set(arrays["client_train"]) == set(arrays["client_test"]) == {0, 1, 2}
    assert remarks == ["clients left out, which have too few examples: 1"]
    with pytest.raises(DataError, match="--min-examples: no client has 60 training examples"):
        taken(tmp_path, frame, **plain(test_share=0.2, min_examples=60))


def test_a_column_that_counts_rows_is_pointed_out(frame, tmp_path) -> None:
    frame.insert(0, "Unnamed: 0", np.arange(60))  # as pandas reads back its own index
    _, remarks = taken(tmp_path, frame, **plain(test_share=0.2))
    assert remarks == ["feature `Unnamed: 0` counts the rows; leave it out with --drop"]


@pytest.mark.parametrize(
    ("change", "wishes", "message"),
    [
        (
            {},
            {"label": "outcom"},
            "--label: .*mine.csv has no column `outcom`; did you mean `outcome`",
        ),
        ({}, {"client": "x"}, "--client: .* has no column `x`; it has age, bmi"),
        ({}, {"drop": ["x"]}, "--drop: .* has no column `x`"),
        ({}, {"drop": ["outcome", "ward"]}, "--drop: column `outcome` is that of --label already"),
        ({}, {"drop": ["age", "bmi", "ward", "side"]}, "no columns left for features"),
        ({}, {"drop": ["side"]}, "`ward`, row 2: expected a number, got `.*`; .*--one-hot ward"),
        ({"age": [*range(59), None]}, {}, r"`age`, row 61: there is no value \(1 are missing\)"),
        ({"age": [*range(59), "n.a."]}, {}, "`age`, row 61: expected a number, got `n.a.`"),
        ({"age": [*range(59), "1,5"]}, {}, "`age`, row 61: expected a number, got `1,5`"),
        (
            {"age": [0.5, np.inf] * 30},
            {},
            "`age`, row 3: expected a finite float32 number, got `inf`",
        ),
        ({"age": [0.5, 1e39] * 30}, {}, "`age`, row 3: expected a finite float32 .*`1e\\+39`"),
        ({"age": "2020-01-01"}, {}, "`age`, row 2: expected numbers, got `2020-01-01`"),
        ({"age": "x" * 10_000}, {}, "row 2: expected a number, got `x{40}…`;"),
        (
            {"outcome": [0, -1] * 30},
            {},
            "`outcome`, row 3: expected labels from 0 .*got -1; --relabel",
        ),
        ({"outcome": [0, 2021] * 30}, {}, "`outcome`, row 3: expected labels .* got 2021"),
        (
            {"outcome": [0, 0.5] * 30},
            {},
            "`outcome`, row 3: expected whole numbers or texts, got `0.5",
        ),
        ({"outcome": ["a", ""] * 30}, {}, "`outcome`, row 3: there is no value"),
        ({"town": ["a", None] * 30}, {}, "`town`, row 3: there is no value"),
        (
            {"side": ["train", "tst"] * 30},
            {"drop": ["ward"], "split": "side", "test_share": None},
            "`side`, row 3: expected train or test, got `tst`",
        ),
        (
            {"side": "train"},
            {"drop": ["ward"], "split": "side", "test_share": None},
            "--split: no row is for testing",
        ),
        ({}, {"test_share": None}, "say what is for testing: --test FILE, --split COLUMN or"),
        ({}, {"split": "side"}, "say in one way what is for testing"),
        ({}, {"channels_last": True}, "--channels-last: .*mine.csv has numbers in columns"),
    ],
)
def test_what_cannot_be_is_named(frame, tmp_path, change, wishes, message) -> None:
    with pytest.raises(DataError, match=message) as error:
        taken(tmp_path, frame.assign(**change), **plain(test_share=0.2) | wishes)
    assert "\n" not in str(error.value)


def test_labels_beyond_the_number_of_examples_are_named(tmp_path) -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.5, 7.0], "y": [1, 2, 1, 2]})
    with pytest.raises(DataError, match=r"--label: there are only 2 .* label 2; --relabel"):
        taken(tmp_path, frame, label="y", test_share=0.5, seed=0)
    assert taken(tmp_path, frame, label="y", test_share=0.5, seed=0, relabel=True)


def test_files_that_do_not_fit_are_named(frame, tmp_path) -> None:
    for test, message in [
        (frame.drop(columns="bmi"), r"test\.csv has no column `bmi`, which .*mine\.csv has"),
        (frame.assign(more=1), r"mine\.csv has no column `more`, which .*test\.csv has"),
        (frame.assign(outcome=1), "--label: column `outcome` is text in one of"),
        (
            frame.assign(outcome="x"),
            "--label: `x` is the label of test examples and of no training",
        ),
        (frame.assign(town="Chur"), "--client: `Basel` has .* training and 0 test examples"),
        (frame.assign(age="old"), r"test\.csv: column `age`, row 2: expected a number, got `old`"),
    ]:
        with pytest.raises(DataError, match=message):
            taken(tmp_path, frame, test, **plain())


def save(folder: Path, **splits: pd.DataFrame) -> Path:
    folder.mkdir()
    for split, frame in splits.items():
        frame.to_parquet(folder / f"{split}-00000-of-00001.parquet")
    return folder


def test_the_splits_train_and_test_are_used_where_there_are_both(frame, tmp_path) -> None:
    parts = {"train": frame[:40], "test": frame[40:55], "validation": frame[55:]}
    arrays, remarks = take("hf", save(tmp_path / "hub", **parts), Wishes(**plain()))
    for side in ("train", "test"):
        assert np.array_equal(arrays[f"x_{side}"], parts[side][["age", "bmi"]].to_numpy(np.float32))
    assert remarks == ["the split `validation` is left out"]


@pytest.mark.parametrize(
    ("splits", "wishes", "message"),
    [
        (["train", "test"], {"test_share": 0.2}, "has the splits .*; expected train and test, and"),
        (["train", "validation"], {}, "has the splits train, validation; expected train and test"),
        (["train"], {}, "say what is for testing"),
    ],
)
def test_splits_that_do_not_fit_are_named(frame, tmp_path, splits, wishes, message) -> None:
    folder = save(tmp_path / "hub", **dict.fromkeys(splits, frame))
    with pytest.raises(DataError, match=message):
        take("hf", folder, Wishes(**plain(**wishes)))


def test_a_split_that_lacks_a_column_is_named(frame, tmp_path) -> None:
    folder = save(tmp_path / "hub", train=frame, test=frame.drop(columns="bmi"))
    with pytest.raises(DataError, match="has no column `bmi`, which"):
        take("hf", folder, Wishes(**plain()))


def test_whole_examples_are_turned_and_stand_alone(tmp_path) -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (6, 5, 4, 3), dtype=np.uint8)
    column = pa.FixedSizeListArray.from_arrays(pictures.reshape(-1), 3)
    for length in (4, 5):
        column = pa.FixedSizeListArray.from_arrays(column, length)
    table = pa.table(
        {"x": column, "y": [0, 1] * 3, "s": ["train"] * 4 + ["test"] * 2, "z": [1] * 6}
    )
    parquet.write_table(table, tmp_path / "mine.parquet")
    wishes = {"label": "y", "split": "s", "channels_last": True}
    arrays = take("hf", tmp_path / "mine.parquet", Wishes(**wishes, drop=["z"])).arrays
    assert np.array_equal(arrays["x_train"], np.moveaxis(pictures[:4], -1, 1))
    with pytest.raises(DataError, match=r"`x` has whole examples, .* leave out z with --drop"):
        take("hf", tmp_path / "mine.parquet", Wishes(**wishes))
    with pytest.raises(DataError, match=r"--normalise: .* pixels, which are scaled"):
        take("hf", tmp_path / "mine.parquet", Wishes(**wishes, drop=["z"], normalise=True))
