"""What can go wrong, as a tree.

FedcomeError
├── UserError          the request cannot be carried out as written; the text says what to change
│   ├── ConfigError    a configuration value that is not allowed
│   ├── GridError      a grid file that does not make trials
│   └── DataError      a dataset that is missing, damaged or unfit for the request
├── ConsensusError     the quadratic program has no usable solution
├── DivergenceError    a client or the server left the range of finite numbers
├── PluginError        the code of a user's method failed; the text says where
├── ShardError         a shard died or did not answer
└── StorageError       a file of a trial could not be written: a full disk, a folder that is gone
    ├── AwayError      object storage does not answer, or not as it should
    └── LostError      another launch has taken over the object storage

A `UserError` is shown as its text and exit code 2, without a traceback.
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches


class FedcomeError(Exception):
    """Base of all errors raised on purpose by this package."""


class UserError(FedcomeError):
    """The request cannot be carried out as written."""


class ConfigError(UserError):
    """A configuration value that is not allowed."""


class GridError(UserError):
    """A grid file that does not make trials."""


class DataError(UserError):
    """A dataset that is missing, damaged or unfit for the request."""


class ConsensusError(FedcomeError):
    """The consensus problem of a cohort has no usable solution."""


class DivergenceError(FedcomeError):
    """Training produced numbers that are not finite."""


class PluginError(FedcomeError):
    """The code of a user's method raised an error, or returned what it must not."""


class ShardError(FedcomeError):
    """A shard died or did not answer."""


class StorageError(FedcomeError):
    """A file of a trial could not be written."""


class AwayError(StorageError):
    """Object storage does not answer, or not as it should."""


class LostError(StorageError):
    """Another launch has taken over the object storage."""


def cut(text: str, longest: int = 200) -> str:
    """A text for a message, with its middle left out if it is long."""
    if len(text) <= longest:
        return text
    half = longest // 2 - 15
    return f"{text[:half]} ... ({len(text) - 2 * half:,} more) ... {text[-half:]}"


def without_passwords(text: str) -> str:
    """Addresses like `https://me:secret@host` are shown as `https://***@host`."""
    named = re.sub(r"(?i)(?<=[?&]password=)[^&\s'\"`]+", "***", text)
    return re.sub(r"(?<=://)[^/\s'\"`]+@", "***@", named)


def did_you_mean(word: str, allowed: Iterable[str]) -> str:
    """The allowed words; if one of them is nearly the given word, it is named first."""
    names = sorted(allowed)
    near = nearest(word, names)
    hint = f"did you mean `{near}`? " if near else ""
    return f"{hint}allowed: {', '.join(names)}"


def nearest(word: str, allowed: Iterable[str]) -> str | None:
    """The allowed word that was probably meant, None if none is near."""
    return next(iter(get_close_matches(word[:100], allowed, n=1)), None)  # it is slow of long ones
