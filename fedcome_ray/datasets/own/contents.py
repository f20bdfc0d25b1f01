"""What is in a user's file, for people: its sizes, and what looks like a mistake."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedcome_ray.datasets import npz, npz_files
from fedcome_ray.datasets.npz import Contents, Npz
from fedcome_ray.datasets.npz_files import AnyArray
from fedcome_ray.datasets.pooled import NUM_CLIENTS
from fedcome_ray.datasets.population import Features, Indices
from fedcome_ray.hyperparameters import name_of

TOO_LARGE, TOO_SMALL = 10.0, 0.01  # of features; training is made for about 1
CHANNELS = (1, 3, 4)
NAMES_SHOWN = 8


class Seen(NamedTuple):
    """The table and the warnings."""

    table: dict[str, str]
    warnings: list[str]


def of_file(path: Path) -> Seen:
    """What is in the file of `npz:PATH`."""
    npz.checked_headers(path)
    return of_arrays(path, npz_files.read(path, npz.EXAMPLES, optional=(*npz.CLIENTS, *npz.NAMES)))


def of_arrays(path: Path, arrays: dict[str, AnyArray]) -> Seen:
    """What is in such a file, if it is fit to be used; `path` is for complaints."""
    found = npz.checked(path, arrays)
    table = {
        "training examples": f"{len(found.train.y):,}",
        "test examples": f"{len(found.test.y):,}",
        "features": _features(found.train.x, arrays),
        "type": _type(arrays["x_train"]),
        "classes": _classes(found, arrays),
        "clients": _clients(found),
    }
    return Seen(table, list(_warnings(found, arrays)))


def _features(x: Features, arrays: Mapping[str, AnyArray]) -> str:
    shape = x.shape[1:]
    if len(shape) > 1:
        return "x".join(map(str, shape))
    names = _names(arrays, "feature_names", shape[0])
    return f"{shape[0]}{f': {_few(names)}' if names else ''}"


def _type(x: AnyArray) -> str:
    if x.dtype == np.uint8:
        return "uint8: pixels, scaled to [0, 1]"
    if x.dtype.kind in "iu":
        return f"{x.dtype}: tokens from {x.min()} to {x.max()}"
    return f"{x.dtype}: numbers from {x.min():.4g} to {x.max():.4g}"


def _classes(found: Contents, arrays: Mapping[str, AnyArray]) -> str:
    names = _names(arrays, "class_names", found.num_classes)
    are_plain = names == [str(label) for label in range(found.num_classes)]
    return f"{found.num_classes}{f': {_few(names)}' if names and not are_plain else ''}"


def _clients(found: Contents) -> str:
    if found.clients is None:
        usual = Npz.model_fields["partition"].get_default(call_default_factory=True)
        return f"not in the file: data.partition decides ({name_of(usual)}, {NUM_CLIENTS} clients)"
    trains, tests = map(np.bincount, found.clients)
    return (
        f"{len(trains):,}, with {trains.min():,} to {trains.max():,} training and "
        f"{tests.min():,} to {tests.max():,} test examples"
    )


def _warnings(found: Contents, arrays: Mapping[str, AnyArray]) -> Iterator[str]:
    yield from _about_classes(found, _names(arrays, "class_names", found.num_classes))
    yield from _about_clients(found, arrays)
    features = found.train.features
    yield from _about_shape(features)
    if features.ndim == 2:
        names = _names(arrays, "feature_names", features.shape[1])
        yield from _about_columns(features, names)
    else:
        yield from _about_scale(features)
    if features.dtype == np.int64 and features.min() < 0:
        yield f"tokens count from 0, and the least is {features.min()}"
    both = _in_both(found)
    if both:
        yield f"{both:,} of {len(found.test.y):,} test examples are also training examples"


def _about_classes(found: Contents, names: Sequence[str]) -> Iterator[str]:
    trains, tests = (
        np.bincount(side.y, minlength=found.num_classes) for side in (found.train, found.test)
    )
    if found.num_classes == 1:
        yield "there is one class only"
    elif trains[0] == 0:
        yield (
            f"labels start at {np.flatnonzero(trains)[0]}: class 0 has no training examples; "
            f"they count from 0 (`import` numbers them anew with --relabel)"
        )
    for counts, side in ((trains[1:], "training"), (tests, "test")):
        empty = np.flatnonzero(counts == 0) + (side == "training")
        if len(empty):
            which = _few([_called(names, label) for label in empty.tolist()])
            yield f"{_several(len(empty), 'class', 'classes')} without {side} examples: {which}"
    if 2 * np.count_nonzero(trains) > len(found.train.y):
        yield (
            f"there are nearly as many classes ({found.num_classes:,}) as training examples "
            f"({len(found.train.y):,})"
        )
    if found.clients is None and len(found.test.y) > 2 and _is_sorted(found.test.y):
        yield (
            "the test examples are sorted by label, so that data.test_split=natural, equal slices, "
            "tests clients on few classes each; shuffle them, or take label_matched"
        )


def _about_clients(found: Contents, arrays: Mapping[str, AnyArray]) -> Iterator[str]:
    if found.clients is None:
        return
    sizes = np.bincount(found.clients[0])
    single = np.flatnonzero(sizes == 1)
    if len(single):
        names = _names(arrays, "client_names", len(sizes))
        which = _few([_called(names, client) for client in single.tolist()])
        yield f"{_several(len(single), 'client', 'clients')} with one training example: {which}"


def _about_shape(x: Features) -> Iterator[str]:
    shape = x.shape[1:]
    if len(shape) == 3 and shape[-1] in CHANNELS and shape[0] not in CHANNELS:
        first = "x".join(map(str, (shape[-1], *shape[:-1])))
        yield (
            f"examples of {'x'.join(map(str, shape))} look like pictures with channels last; "
            f"models take them first, {first} (`import` moves them with --channels-last)"
        )


def _about_columns(x: Features, names: Sequence[str]) -> Iterator[str]:
    """Of numbers in columns: those that say nothing, and those that outweigh all others."""
    if x.dtype != np.float32:
        return
    constant = np.flatnonzero(x.min(axis=0) == x.max(axis=0))
    if len(constant):
        which = _few([_called(names, feature) for feature in constant.tolist()])
        yield f"{_several(len(constant), 'feature', 'features')} the same in all examples: {which}"
    level, largest = _root_mean_square(x), np.abs(x).max(axis=0)
    odd = np.flatnonzero((level > TOO_LARGE) | ((largest < TOO_SMALL) & (largest > 0)))
    if len(odd):
        worst = int(odd[np.argmax(np.abs(np.log(level[odd])))])
        yield (
            f"{_several(len(odd), 'feature', 'features')} far from a scale of 1, the most: "
            f"{_called(names, worst)}, root mean square {level[worst]:.3g} "
            f"(`import` mends it with --normalise)"
        )


def _about_scale(x: Features) -> Iterator[str]:
    """Of pictures and other arrays, whose features have one scale."""
    level = float(np.sqrt(np.mean(_root_mean_square(x) ** 2)))
    if x.dtype == np.float32 and (level > TOO_LARGE or 0 < level < TOO_SMALL):
        yield (
            f"features are far from a scale of 1: root mean square {level:.3g}; pixels are scaled "
            f"if they are bytes (uint8), and `import` normalises numbers with --normalise"
        )


def _root_mean_square(x: Features) -> AnyArray:
    return np.asarray(np.sqrt(np.square(x, dtype=np.float64).mean(axis=0)))


def _in_both(found: Contents) -> int:
    """How many test examples have the features of a training example."""
    trained = {hash(row.tobytes()) for row in found.train.x}
    return sum(hash(row.tobytes()) in trained for row in found.test.x)


def _is_sorted(labels: Indices) -> bool:
    return bool(np.all(np.diff(labels) >= 0) and labels[0] != labels[-1])


def _names(arrays: Mapping[str, AnyArray], key: str, count: int) -> list[str]:
    """What the file calls its features, classes or clients, if it names all of them."""
    names = arrays.get(key)
    fits = names is not None and names.shape == (count,) and names.dtype.kind == "U"
    return list(map(str, names)) if names is not None and fits else []


def _called(names: Sequence[str], number: int) -> str:
    return f"`{names[number]}`" if names else str(number)


def _few(names: Sequence[str]) -> str:
    shown = [name if len(name) <= 40 else f"{name[:40]}…" for name in names[:NAMES_SHOWN]]
    return ", ".join([*shown, "…"] if len(names) > NAMES_SHOWN else shown)


def _several(count: int, one: str, many: str) -> str:
    return f"one {one} is" if count == 1 else f"{count:,} {many} are"
