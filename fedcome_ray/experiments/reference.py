"""The reference of all settings, written from their types: names, values, defaults, meanings."""

import sys
from collections.abc import Iterator, Mapping

from pydantic.fields import FieldInfo

from fedcome_ray.experiments.choices import CHOICES, description, first_sentence
from fedcome_ray.experiments.local import LocalConfig
from fedcome_ray.experiments.settings import written
from fedcome_ray.experiments.trial import PLUGINS, Availability, StopConfig, Trial
from fedcome_ray.hyperparameters import Hyperparameters, words

HEAD = """\
# Settings

All settings of a trial, by dotted name: `--set local.lr=0.1` on the command line, `local.lr: 0.1`
or `local: {lr: 0.1}` in a [grid](grids.md), `Trial(local={"lr": 0.1})` in [Python](python.md). What
a trial has, and where each value comes from:

```bash
python -m fedcome_ray.run --set method.name=fedcome --show
```

Choosing a `name` or a `dataset` gives the defaults of what is chosen; its settings are listed under
its name. This page is written by `python -m fedcome_ray.settings`; with `--plugin FILE` that lists
your own too.
"""

TITLES = {
    "local": "Local training",
    "availability": "Availability",
    "stop": "Early stopping",
    "data": "Datasets",
    "data.partition": "Partitions",
    "model": "Models",
    "method": "Methods",
    "sampler": "Samplers",
}
ABOUT = {
    "local": "How clients train, the same for all methods.",
    "availability": "Clients that fail; by default everybody is there and takes all steps.",
    "stop": "Off by default: all rounds are run. Setting one of these turns it on; the other has "
    "the default that is shown.",
}
GROUPS: Mapping[str, type[Hyperparameters]] = {
    "local": LocalConfig,
    "availability": Availability,
    "stop": StopConfig,
}
"""Settings that are written together, and have nothing to choose."""
FILLED_IN = frozenset({"init_digest", "sha256", *PLUGINS})
"""Settings that are found out, and not given."""


def markdown() -> str:
    """The whole page."""
    parts = [HEAD, "## Trial\n", *_table(Trial, "")]
    for name, record in GROUPS.items():
        parts += [f"## {TITLES[name]}\n\n{ABOUT[name]}\n", *_table(record, f"{name}.")]
    for name, registry in CHOICES.items():
        parts.append(f"## {TITLES[name]}\n\nChosen by `{name}.{registry.chosen_by}`.\n")
        for choice, entry in registry.items():
            parts.append(f"### {choice}\n\n{about(entry.config)}\n")
            parts += _table(entry.config, f"{name}.")
    return "\n".join(parts)


def about(record: type[Hyperparameters]) -> str:
    """A method has a file of its own, whose first words say more than those at its settings."""
    module = sys.modules[record.__module__]
    is_alone = hasattr(module, "build")
    return first_sentence((is_alone and module.__doc__) or record.__doc__)


def _table(record: type[Hyperparameters], prefix: str) -> Iterator[str]:
    rows = list(_rows(record, prefix))
    if rows:
        yield (
            "| setting | values | default | meaning |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
        )


def _rows(record: type[Hyperparameters], prefix: str) -> Iterator[str]:
    properties = record.model_json_schema()["properties"]
    for name, field in record.model_fields.items():
        full = f"{prefix}{name}"
        if full in GROUPS or name in FILLED_IN or _chooses(prefix, name):
            continue
        values = _choice(full) or words(properties[name])
        yield f"| `{full}` | {values} | {_default(field)} | {description(record, name)} |"


def _chooses(prefix: str, name: str) -> bool:
    registry = CHOICES.get(prefix.removesuffix("."))
    return registry is not None and registry.chosen_by == name


def _choice(name: str) -> str:
    """The section that lists what a setting can be."""
    return f"[{TITLES[name].lower()}](#{TITLES[name].lower()})" if name in CHOICES else ""


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if isinstance(value, Hyperparameters):
        dumped = value.model_dump(mode="json")
        return f"`{dumped.get('name') or dumped['dataset']}`"
    return f"`{written(list(value) if isinstance(value, tuple) else value)}`"
