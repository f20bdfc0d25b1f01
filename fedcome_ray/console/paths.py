"""Folders and addresses that a user gives, checked before anything long starts."""

import hashlib
import re
import tempfile
from pathlib import Path
from typing import NamedTuple

from platformdirs import user_cache_path

from fedcome_ray.errors import UserError, cut
from fedcome_ray.storage.remote import Remote, is_address

STORE = "mlflow.db"  # of MLflow, in an output folder
JOB_COPY = "working_dir_files"  # the folder that Ray has such copies in


def absolute(path: Path, option: str) -> Path:
    """A path that an option gives, from the root."""
    try:
        return path.expanduser().absolute()
    except RuntimeError as error:  # nobody is called so
        raise UserError(f"{option}: `{path}`: {error}") from None


def check_output(folder: Path) -> Path:
    """The output folder, made if need be, for its user alone; it must take files."""
    folder = absolute(folder, "--output")
    if JOB_COPY in folder.parts:
        raise UserError(
            f"--output: `{folder}` is in the copy of its working_dir that Ray makes for a job, and "
            f"deletes; give a path from the root"
        )
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(f"--output: cannot write to `{folder}`: {error.strerror}") from None
    return folder


def check_file(path: Path, option: str) -> None:
    """A file that will be written or replaced as a whole, so its folder must take another."""
    folder = path.absolute().parent
    try:
        if not folder.is_dir():
            raise UserError(f"{option}: there is no folder `{path.parent}`")
        if path.exists() and not path.is_file():  # a device would be replaced, too
            what = "a folder" if path.is_dir() else "not a file"
            raise UserError(f"{option}: `{path}` is {what}; give the path of a file to write")
        with tempfile.NamedTemporaryFile(dir=folder, prefix=f".{path.name}."):
            pass
    except OSError as error:
        raise UserError(
            f"{option}: cannot write `{cut(str(path))}`: {error.strerror}; give the path of a file "
            f"in a folder that takes files"
        ) from None


class Output(NamedTuple):
    """A folder of results; of a storage, its working copy on this machine."""

    folder: Path
    storage: Remote | None


def find_output(given: str | Path) -> Output:
    """The output that is asked for, which need not be there."""
    if not str(given).strip():
        raise UserError(f"--output: got `{given}`, expected a folder or s3://BUCKET/PREFIX")
    if isinstance(given, Path) or not is_address(given):
        return Output(absolute(Path(given), "--output"), None)
    address = given.rstrip("/")
    # Readable, and one for each address.
    digest = hashlib.sha256(address.encode()).hexdigest()[:8]
    name = f"{re.sub(r'[^A-Za-z0-9.]+', '-', address)[:100]}-{digest}"
    return Output(user_cache_path("fedcome_ray") / "outputs" / name, Remote(address))


def open_output(given: str | Path) -> Output:
    """The output that is asked for, ready to be written to."""
    output = find_output(given)
    check_output(output.folder)
    if output.storage is not None:
        output.storage.check()
    return output


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


def check_store(output: Output) -> Path:
    """The file of the store in the output folder, which must be there."""
    store = output.folder / STORE
    if store.is_file():
        return store
    if output.storage is not None:
        raise UserError(
            f"--output: this machine has no store of MLflow for `{output.storage.address}`: an "
            f"address keeps results alone. Give the command that made them here: it runs nothing "
            f"again and fills `{store}`"
        )
    raise UserError(
        f"--output: there is no store `{store}`; run a grid first, for example "
        f"`python -m fedcome_ray.tune --grid full_participation`"
    )


def default_tracking_uri(output: Path) -> str:
    """The store in the output folder."""
    return f"sqlite:///{output / STORE}"


def tracking_uri(given: str | None, output: Path) -> str:
    """The store that is asked for, or a file in the output folder."""
    if given is None and re.search(r"\?|%[0-9A-Fa-f]{2}", str(output)):
        raise UserError(
            f"--output: `{output}` has a `?` or something like `%20`, which mean something else in "
            f"the address of an SQLite store; take another folder or give --tracking-uri"
        )
    return default_tracking_uri(output) if given is None else given
