"""Shakespeare: the next character of what a role says; each role of each play is a client.

McMahan et al., 2017, as Caldas et al. prepare it: LEAF: A Benchmark for Federated Settings.
https://leaf.cmu.edu
"""

from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveInt

from fedcome_ray.datasets import leaf, natural
from fedcome_ray.datasets.leaf import Decoded
from fedcome_ray.datasets.natural import Natural
from fedcome_ray.datasets.published import Originals, Published

# LEAF's vocabulary, in its order: the place of a character is its token.
VOCABULARY = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
LENGTH = 80
LEAFS_ROLES, LEAFS_EXAMPLES = 1_129, 4_226_158

UNKNOWN = 255
TOKENS = np.full(128, UNKNOWN, np.uint8)
TOKENS[[ord(character) for character in VOCABULARY]] = np.arange(len(VOCABULARY))


class Shakespeare(Natural):
    """80 characters of a role in a play, then one to be foretold; each role is a client."""

    dataset: Literal["shakespeare"] = "shakespeare"
    num_clients: PositiveInt | None = None
    """The first roles by id; None: all that there are."""


def decode(data: Any) -> Decoded:
    """The texts of one role as tokens."""
    try:
        texts, following = list(data["x"]), list(data["y"])
        lengths = {*map(len, texts)}, {*map(len, following)}
        x, y = _tokens("".join(texts)), _tokens("".join(following))
    except (KeyError, TypeError) as error:
        raise ValueError(f"has no texts of {LENGTH} characters ({error})") from None
    if len(texts) != len(following) or not texts:
        raise ValueError(f"has {len(texts)} texts, {len(following)} characters that follow")
    if lengths != ({LENGTH}, {1}):
        wrong = sorted(lengths[0] - {LENGTH}) or sorted(lengths[1] - {1})
        raise ValueError(
            f"must have texts of {LENGTH} characters and one that follows, got {wrong[0]}"
        )
    return x.reshape(-1, LENGTH), y.astype(np.int64)


def _tokens(text: str) -> NDArray[np.uint8]:
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    tokens: NDArray[np.uint8] = TOKENS[np.minimum(codes, len(TOKENS) - 1)]
    unknown = np.flatnonzero(tokens == UNKNOWN)
    if len(unknown):
        raise ValueError(
            f"has the character {text[unknown[0]]!r}, which is not among LEAF's {len(VOCABULARY)}"
        )
    return tokens


def are_present(folder: Path) -> bool:
    return leaf.find(folder / "shakespeare", "shakespeare") is not None


def how_to_get(folder: Path) -> list[str]:
    return [
        "make it:  LEAF's `preprocess.sh -s niid --sf 0.2 -k 0 -t sample -tf 0.8`, then put its "
        f"folders train and test (JSON files) into {folder / 'shakespeare'}"
    ]


# Which roles there are depends on LEAF's sampling; these are all of them, 4 of 5 examples to train.
PUBLISHED = Published(
    name="shakespeare",
    feature_shape=(LENGTH,),
    num_classes=len(VOCABULARY),
    num_train=LEAFS_EXAMPLES * 4 // 5,
    num_test=LEAFS_EXAMPLES - LEAFS_EXAMPLES * 4 // 5,
    clients=f"roles (LEAF has {LEAFS_ROLES:,} in all)",
    originals=Originals(
        are_present, partial(leaf.read, "shakespeare", decode), how_to_get, are_imported=True
    ),
)

DATASET = natural.dataset(Shakespeare, PUBLISHED, LEAFS_ROLES, "Shakespeare")
