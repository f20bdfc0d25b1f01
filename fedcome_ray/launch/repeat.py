"""A trial again: from the folder that it left, or from its run in MLflow.

Both have the trial's settings and, where its method is a plugin, the plugin's code as it was. The
key and the digest in the settings see to it that what is repeated is the same trial.
"""

import json
import re
import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from fedcome_ray import methods
from fedcome_ray.console.options import Locations
from fedcome_ray.errors import UserError
from fedcome_ray.experiments.settings import Settings
from fedcome_ray.trials.folder import SETTINGS, TrialResult
from fedcome_ray.trials.origin import PLUGIN

RUN_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Kept:
    """What is left of a trial to repeat it from."""

    settings: Settings
    plugin: Path | None  # its code, where the method is not known otherwise


def find(reference: str, locations: Locations) -> Kept:
    """The trial in a folder, or in the run of that id, and its plugin made known."""
    folder = _folder_of(reference, locations)
    try:
        settings: Settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"--from: cannot read `{folder / SETTINGS}`: {error}") from None
    return Kept(settings, _load_plugin(settings, folder))


def with_plugin(locations: Locations, kept: Kept) -> Locations:
    """Other processes need the plugin too."""
    if kept.plugin is None:
        return locations
    return replace(locations, plugins=(*locations.plugins, str(kept.plugin)))


def command(folder: Path, result: TrialResult, locations: Locations, *, from_file: bool) -> str:
    """How to repeat a finished trial, for another folder: here it would only be shown."""
    words = ["--from", str(folder), "--output", "again"]
    if any(one.get("portable") == "true" for one in result.computed_with):
        words.append("--portable")
    if locations.data_dir is not None:
        words += ["--data-dir", str(locations.data_dir)]
    start = " --init-model FILE" if from_file else ""
    return f"python -m fedcome_ray.run {shlex.join(words)}{start}"


def _folder_of(reference: str, locations: Locations) -> Path:
    path = Path(reference).expanduser().absolute()
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


def _load_plugin(settings: Settings, folder: Path) -> Path | None:
    """Make the trial's method known, if it is a plugin that was not given by `--plugin`."""
    entry = methods.REGISTRY.get(str(settings.get("method", {}).get("name")))
    digest = settings.get("plugin")
    if digest is None or (entry is not None and entry.digest == digest):
        return None
    path = folder / PLUGIN
    if not path.is_file():
        raise UserError(f"--from: `{folder}` has no {PLUGIN}; give the code with --plugin")
    methods.load_plugins([str(path)])
    return path
