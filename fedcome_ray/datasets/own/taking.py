"""From tables to the arrays of `npz:PATH`: what columns are, who owns rows, which are for tests."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedcome_ray.datasets.npz_files import AnyArray
from fedcome_ray.datasets.own import arrow_files, csv_file
from fedcome_ray.datasets.own.table import Table, shown
from fedcome_ray.datasets.population import Indices
from fedcome_ray.errors import DataError

HOW_TO_TEST = "--test FILE, --split COLUMN or --test-share 0.2"


@dataclass(frozen=True)
class Wishes:
    """What a user says about a table; the columns that are not mentioned are features."""

    label: str
    client: str | None = None
    test: Path | None = None  # a file of its own
    split: str | None = None  # a column that says `train` or `test`
    test_share: float | None = None
    seed: int = 0
    drop: Sequence[str] = ()
    one_hot: Sequence[str] = ()
    relabel: bool = False
    normalise: bool = False
    channels_last: bool = False
    min_examples: int | None = None


class Taken(NamedTuple):
    """What was made of the tables."""

    arrays: dict[str, AnyArray]
    remarks: list[str]  # what was left out, and what looks wrong


def take(kind: str, path: Path, wishes: Wishes) -> Taken:
    """Read what a user has and make of it what trials read."""
    tables, is_test, remarks = _tables(kind, path, wishes)
    columns = _feature_columns(tables[0], wishes)
    remarks += _row_numbers(tables[0], columns)
    x, feature_names = _features(tables, columns, wishes)
    labels = _joined("--label", wishes.label, tables)
    clients = _joined("--client", wishes.client, tables) if wishes.client else None
    y, class_names = _numbered_labels(tables, labels, wishes)
    owners, client_names = _numbered(np.zeros(len(y), np.int64) if clients is None else clients)
    train, test = _sides(owners, is_test, wishes)
    if clients is not None:
        train, test, kept = _with_both(owners, train, test, client_names, wishes)
        if len(kept) < len(client_names):
            left_out = len(client_names) - len(kept)
            remarks.append(f"clients left out, which have too few examples: {left_out:,}")
        owners, client_names = np.searchsorted(kept, owners), client_names[kept]
    _check_classes(y[train], y[test], class_names)
    if wishes.normalise:
        x = _normalised(x, train)
    arrays: dict[str, AnyArray] = {"class_names": class_names[: 1 + y[train].max()]}
    if len(feature_names):
        arrays["feature_names"] = feature_names
    for side, rows in (("train", train), ("test", test)):
        arrays |= {f"x_{side}": x[rows], f"y_{side}": y[rows]}
        if clients is not None:
            arrays |= {f"client_{side}": owners[rows], "client_names": client_names}
    return Taken(arrays, remarks)


def _tables(
    kind: str, path: Path, wishes: Wishes
) -> tuple[list[Table], NDArray[np.bool_] | None, list[str]]:
    """The table or both, which rows are for testing if that is said, and what was left out."""
    splits = _read(kind, path)
    ways = [way for way in (wishes.test, wishes.split, wishes.test_share) if way is not None]
    if len(ways) > 1:
        raise DataError(f"say in one way what is for testing: {HOW_TO_TEST}")
    if splits.keys() >= {"train", "test"} and not ways:
        both = [splits.pop("train"), splits.pop("test")]
        _check_same_columns(*both)
        return both, _marks(both), [f"the split `{name}` is left out" for name in splits]
    if len(splits) > 1:
        raise DataError(
            f"{path} has the splits {', '.join(splits)}; expected train and test, and none of "
            f"--test, --split and --test-share"
        )
    if not ways:
        raise DataError(f"say what is for testing: {HOW_TO_TEST}")
    (table,) = splits.values()
    if wishes.test is not None:
        both = [table, _only(wishes.test, _read(kind, wishes.test))]
        _check_same_columns(*both)
        return both, _marks(both), []
    if wishes.split is None:
        return [table], None, []
    table.check_has("--split", wishes.split)
    sides = table.identities(wishes.split)
    for row in np.flatnonzero(~np.isin(sides, ["train", "test"])):
        raise table.complaint(wishes.split, row, f"expected train or test, got {shown(sides[row])}")
    return [table], sides == "test", []


def _read(kind: str, path: Path) -> dict[str, Table]:
    return {arrow_files.ALL: csv_file.read(path)} if kind == "csv" else arrow_files.read(path)


def _only(path: Path, splits: dict[str, Table]) -> Table:
    if len(splits) > 1:
        raise DataError(f"--test: {path} has the splits {', '.join(splits)}; expected one")
    return next(iter(splits.values()))


def _marks(tables: Sequence[Table]) -> NDArray[np.bool_]:
    """Which of the joined rows are of the second table."""
    return np.repeat([False, True], [table.num_rows for table in tables])


def _check_same_columns(train: Table, test: Table) -> None:
    for name in sorted({*train.names} ^ {*test.names}):
        has, lacks = (train, test) if name in train.names else (test, train)
        raise DataError(f"{lacks.path} has no column {shown(name)}, which {has.path} has")


def _feature_columns(table: Table, wishes: Wishes) -> list[str]:
    """The columns that are not something else."""
    chosen = {"--label": [wishes.label], "--drop": wishes.drop, "--one-hot": wishes.one_hot}
    if wishes.client is not None:
        chosen["--client"] = [wishes.client]
    if wishes.split is not None:
        chosen["--split"] = [wishes.split]
    used: dict[str, str] = {}
    for option, names in chosen.items():
        for name in names:
            table.check_has(option, name)
            if name in used:
                raise DataError(f"{option}: column {shown(name)} is that of {used[name]} already")
            used[name] = option
    features = [name for name in table.names if used.get(name, "--one-hot") == "--one-hot"]
    if not features:
        raise DataError(f"{table.path} has no columns left for features")
    return features


def _row_numbers(table: Table, columns: Sequence[str]) -> list[str]:
    """A remark on each column that only counts rows, as files of data frames often have one."""
    found = []
    for name in columns:
        if table.num_rows > 2 and table.is_number(name):
            numbers = table.numbers(name)
            if np.array_equal(numbers, numbers[0] + np.arange(len(numbers), dtype=np.float32)):
                found.append(f"feature {shown(name)} counts the rows; leave it out with --drop")
    return found


def _features(
    tables: Sequence[Table], columns: Sequence[str], wishes: Wishes
) -> tuple[AnyArray, AnyArray]:
    """The features of all rows, and what they are called if they have names."""
    whole = [name for name in columns if tables[0].is_array(name)]
    if whole:
        if len(columns) > 1:
            raise DataError(
                f"{tables[0].path}: column {shown(whole[0])} has whole examples, so there can be "
                f"no other features; leave out {', '.join(c for c in columns if c != whole[0])} "
                f"with --drop"
            )
        return _whole_examples(tables, whole[0], wishes), np.empty(0, np.str_)
    if wishes.channels_last:
        raise DataError(f"--channels-last: {tables[0].path} has numbers in columns, no pictures")
    parts: list[NDArray[np.float32]] = []
    names: list[str] = []
    for name in columns:
        if name in wishes.one_hot:
            values, categories = _numbered(_joined("--one-hot", name, tables))
            parts.append(np.eye(len(categories), dtype=np.float32)[values])
            names += [f"{name}={category}" for category in categories]
        else:
            parts.append(np.concatenate([table.numbers(name) for table in tables])[:, None])
            names.append(name)
    return np.concatenate(parts, axis=1), np.array(names, np.str_)


def _whole_examples(tables: Sequence[Table], name: str, wishes: Wishes) -> AnyArray:
    arrays = [table.array(name) for table in tables]
    kinds = {(array.shape[1:], array.dtype) for array in arrays}
    if len(kinds) > 1:
        first, second = ((a.dtype, a.shape[1:]) for a in arrays)
        raise DataError(
            f"{tables[1].path}: column {shown(name)} has {second[0]} of {second[1]}, "
            f"and in the training examples {first[0]} of {first[1]}"
        )
    x = np.concatenate(arrays)
    if not wishes.channels_last:
        return x
    if x.ndim != 4:
        raise DataError(
            f"--channels-last: expected pictures of height, width, channels in column "
            f"{shown(name)}, got shape {x.shape[1:]}"
        )
    return np.ascontiguousarray(np.moveaxis(x, -1, 1))


def _joined(option: str, name: str, tables: Sequence[Table]) -> AnyArray:
    """A column of whole numbers or texts of all tables."""
    for table in tables:
        table.check_has(option, name)
    parts = [table.identities(name) for table in tables]
    if len({part.dtype.kind for part in parts}) > 1:
        raise DataError(
            f"{option}: column {shown(name)} is text in one of {tables[0].path} and "
            f"{tables[1].path}, and numbers in the other"
        )
    return np.concatenate(parts)


def _numbered(values: AnyArray) -> tuple[Indices, AnyArray]:
    """Numbers from 0 in the order of the different values, and these as texts."""
    different, numbers = np.unique(values, return_inverse=True)
    return numbers.reshape(-1).astype(np.int64), different.astype(np.str_)


def _numbered_labels(
    tables: Sequence[Table], labels: AnyArray, wishes: Wishes
) -> tuple[Indices, AnyArray]:
    """Texts are numbered in their order, and numbers taken as they are unless told otherwise."""
    if labels.dtype.kind == "U" or wishes.relabel:
        return _numbered(labels)
    for place in np.flatnonzero((labels < 0) | (labels >= len(labels))):
        table, row = tables[0], place
        if place >= tables[0].num_rows:
            table, row = tables[1], place - tables[0].num_rows
        raise table.complaint(
            wishes.label,
            row,
            f"expected labels from 0 to less than the number of rows, got {labels[place]}; "
            f"--relabel numbers those that there are from 0",
        )
    named = arrow_files.class_names(tables[0], wishes.label) or []
    num_classes = 1 + int(labels.max())
    names = named if len(named) >= num_classes else map(str, range(num_classes))
    return labels, np.array(list(names)[:num_classes], np.str_)


def _sides(
    owners: Indices, is_test: NDArray[np.bool_] | None, wishes: Wishes
) -> tuple[Indices, Indices]:
    """The rows for training and for testing, as they are marked or drawn from each client's."""
    if is_test is not None:
        train, test = np.flatnonzero(~is_test), np.flatnonzero(is_test)
        if not len(train) or not len(test):
            raise DataError(f"--split: no row is for {'testing' if len(train) else 'training'}")
        return train, test
    from fedcome_ray.numerics.randomness import Stream, generator  # imports PyTorch

    order, sizes = np.argsort(owners, kind="stable"), np.bincount(owners)
    drawn = []
    for client, rows in enumerate(np.split(order, np.cumsum(sizes)[:-1])):
        count = min(max(1, round(len(rows) * (wishes.test_share or 0))), len(rows) - 1)
        drawn.append(generator(wishes.seed, Stream.DATA, client).permutation(rows)[:count])
    # Left in the order of the draw: a pool is tested in slices, which should be alike.
    test = np.concatenate(drawn)
    if not len(test):
        raise DataError("--test-share: there are not two examples to be shared between the sides")
    return np.setdiff1d(np.arange(len(owners)), test), test


def _with_both(
    owners: Indices, train: Indices, test: Indices, names: AnyArray, wishes: Wishes
) -> tuple[Indices, Indices, Indices]:
    """The rows of clients that have enough of both sides, and who these are."""
    trains, tests = (np.bincount(owners[rows], minlength=len(names)) for rows in (train, test))
    fits = (trains >= (wishes.min_examples or 1)) & (tests >= 1)
    without = np.flatnonzero(~fits)
    if wishes.min_examples is None and len(without):
        first = without[0]
        raise DataError(
            f"--client: {shown(names[first])} has {trains[first]} training and {tests[first]} test "
            f"examples ({len(without)} of {len(names)} clients are without one of them); "
            f"leave such clients out with --min-examples 1"
        )
    if not fits.any():
        raise DataError(f"--min-examples: no client has {wishes.min_examples} training examples")
    return train[fits[owners[train]]], test[fits[owners[test]]], np.flatnonzero(fits)


def _check_classes(train: Indices, test: Indices, names: AnyArray) -> None:
    if train.max() >= len(train):
        raise DataError(
            f"--label: there are only {len(train)} training examples, too few for the label "
            f"{train.max()}; --relabel numbers those that there are from 0"
        )
    for label in np.flatnonzero(np.bincount(test) > 0):
        if label > train.max():
            raise DataError(
                f"--label: {shown(names[label])} is the label of test examples and of no training "
                f"example, which is allowed of lower labels only; the highest for training is "
                f"{shown(names[train.max()])}"
            )


def _normalised(x: AnyArray, train: Indices) -> AnyArray:
    """Minus the mean and over the standard deviation of each feature of the training examples."""
    if x.dtype != np.float32:
        raise DataError(
            f"--normalise: for numbers only; {x.dtype} are "
            f"{'pixels, which are scaled to [0, 1]' if x.dtype == np.uint8 else 'tokens'}"
        )
    mean = x[train].mean(axis=0, dtype=np.float64)
    std = x[train].std(axis=0, dtype=np.float64)
    normalised: NDArray[np.float32] = ((x - mean) / np.where(std > 0, std, 1)).astype(np.float32)
    return normalised
