"""Folders and addresses that a user gives, checked before anything long starts."""

import re
import tempfile
from pathlib import Path

from fedcome_ray.errors import UserError


def absolute(path: Path, option: str) -> Path:
    """A path that an option gives, from the root."""
    try:
        return path.expanduser().absolute()
    except RuntimeError as error:  # nobody is called so
        raise UserError(f"{option}: `{path}`: {error}") from None


def check_output(folder: Path) -> Path:
    """The output folder, made if need be, for its user alone; it must take files."""
    folder = absolute(folder, "--output")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(f"--output: cannot write to `{folder}`: {error.strerror}") from None
    return folder


def check_data_dir(folder: Path | None) -> Path | None:
    """The data folder, which must be readable if it is given."""
    if folder is None:
        return None
    folder = absolute(folder, "--data-dir")
    try:
        next(folder.iterdir(), None)
    except OSError as error:
        raise UserError(f"--data-dir: cannot read `{folder}`: {error.strerror}") from None
    return folder


def default_tracking_uri(output: Path) -> str:
    """The store in the output folder."""
    return f"sqlite:///{output / 'mlflow.db'}"


def tracking_uri(given: str | None, output: Path) -> str:
    """The store that is asked for, or a file in the output folder."""
    if given is None and re.search(r"\?|%[0-9A-Fa-f]{2}", str(output)):
        raise UserError(
            f"--output: `{output}` has a `?` or something like `%20`, which mean something else in "
            f"the address of an SQLite store; take another folder or give --tracking-uri"
        )
    return default_tracking_uri(output) if given is None else given
