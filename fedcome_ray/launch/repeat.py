"""A trial again: from the folder that it left, or from its run in MLflow.

Both have the trial's settings and the code of its plugins as it was. The key and the digests in
the settings see to it that what is repeated is the same trial.
"""

import json
import re
import shlex
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from typing import Any

from fedcome_ray.console.options import Locations
from fedcome_ray.console.paths import absolute
from fedcome_ray.errors import AwayError, UserError
from fedcome_ray.experiments.choices import CHOICES
from fedcome_ray.experiments.settings import Settings
from fedcome_ray.experiments.trial import PLUGINS as FIELDS
from fedcome_ray.plugins import load_plugins
from fedcome_ray.registry import Registry
from fedcome_ray.storage.remote import Remote, is_address
from fedcome_ray.storage.working_copy import WorkingCopy
from fedcome_ray.trials.folder import RESULT, SETTINGS, TrialResult, verified
from fedcome_ray.trials.origin import PLUGINS, kept_plugins

AGAIN = "again"  # the folder to repeat a trial in
RUN_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Kept:
    """What is left of a trial to repeat it from."""

    settings: Settings
    plugins: tuple[str, ...]  # files with what is not known otherwise


def find(reference: str, locations: Locations) -> Kept:
    """The trial in a folder, or in the run of that id, and its plugins made known."""
    folder = _folder_of(reference, locations)
    try:
        settings: Any = json.loads(verified(folder, SETTINGS).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"--from: cannot read `{folder / SETTINGS}`: {error}") from None
    if not isinstance(settings, dict) or not isinstance(settings.get("method"), dict):
        raise UserError(f"--from: `{folder / SETTINGS}` has not the settings of a trial")
    return Kept(settings, _load_kept(settings, folder))


def with_plugins(locations: Locations, kept: Kept) -> Locations:
    """Other processes need the plugins too."""
    return replace(locations, plugins=(*locations.plugins, *kept.plugins))


def command(folder: Path, result: TrialResult, locations: Locations, *, from_file: bool) -> str:
    """How to repeat a finished trial, for another folder: here it would only be shown."""
    words = ["--from", locations.shown(folder), "--output", _new_folder()]
    if any(one.get("portable") == "true" for one in result.computed_with):
        words.append("--portable")
    if locations.data_dir is not None:
        words += ["--data-dir", str(locations.data_dir)]
    start = " --init-model FILE" if from_file else ""
    return f"python -m fedcome_ray.run {shlex.join(words)}{start}"


def _new_folder() -> str:
    """A folder that is not there: one that has the trial already would only show it."""
    names = chain([AGAIN], (f"{AGAIN}_{number}" for number in count(2)))
    return next(name for name in names if not Path(name).exists())


def _folder_of(reference: str, locations: Locations) -> Path:
    if is_address(reference):
        return _pulled(reference, locations)
    path = absolute(Path(reference), "--from")
    if path.is_dir():
        return path
    if path.name == SETTINGS and path.is_file():
        return path.parent
    if not RUN_ID.fullmatch(reference):
        raise UserError(
            f"--from: `{reference}` is neither the folder of a trial nor the id of a run in "
            f"MLflow, 32 digits and letters"
        )
    from fedcome_ray.tracking.store import fetch_trial

    fetched = locations.output / "fetched" / reference
    fetch_trial(locations.tracking_uri, reference, fetched)
    return fetched


def _pulled(address: str, locations: Locations) -> Path:
    """The folder of a trial in a storage, brought here."""
    remote = Remote(address.rstrip("/"))
    copy = WorkingCopy(remote, locations.output / "fetched" / remote.address.rpartition("/")[2])
    try:
        found = copy.pull(is_wanted=_is_needed)
    except AwayError as error:
        raise UserError(f"--from: cannot read {error}") from None
    if SETTINGS not in found:
        raise UserError(f"--from: `{address}` is not the folder of a trial: no {SETTINGS}")
    return copy.folder


def _is_needed(name: str) -> bool:
    return name in {SETTINGS, RESULT} or name.startswith(f"{PLUGINS}/")


def _load_kept(settings: Settings, folder: Path) -> tuple[str, ...]:
    """Make known what the trial needs and `--plugin` did not give."""
    missing = _missing(settings)
    if not missing:
        return ()
    files = tuple(map(str, kept_plugins(folder)))
    load_plugins(files)
    if missing := _missing(settings):
        raise UserError(
            f"--from: `{folder}` has no code of its {' and '.join(missing)} in {PLUGINS}/; "
            f"give it with --plugin"
        )
    return files


def _missing(settings: Settings) -> list[str]:
    """The things whose code is not what the trial was written down with."""
    return [
        CHOICES[setting].kind
        for field, setting in FIELDS.items()
        if (digest := settings.get(field)) is not None
        and digest != _digest(CHOICES[setting], settings[setting])
    ]


def _digest(registry: Registry[Any], settings: Settings) -> str | None:
    entry = registry.get(str(settings[registry.chosen_by]))
    return entry.code.digest if entry is not None and entry.code is not None else None
