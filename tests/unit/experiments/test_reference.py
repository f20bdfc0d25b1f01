"""The reference of all settings: complete, current, and in words."""

from pathlib import Path
from typing import Any

import pytest

from fedcome_ray import settings
from fedcome_ray.experiments.choices import CHOICES, description
from fedcome_ray.experiments.local import LocalConfig
from fedcome_ray.experiments.reference import about
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.hyperparameters import Hyperparameters, words
from tests.end_to_end.commands import run

DOCS = Path(__file__).parents[3] / "docs"
RECORDS = [
    Trial,
    LocalConfig,
    *(entry.config for registry in CHOICES.values() for entry in registry.values()),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_every_setting_is_explained(record: type[Hyperparameters]) -> None:
    chosen_by = {"name", "dataset"}
    silent = [f for f in record.model_fields if f not in chosen_by and not description(record, f)]
    assert silent == []
    assert about(record)


@pytest.mark.parametrize(
    ("file", "options"), [("settings.md", []), ("grid.schema.json", ["--schema"])]
)
def test_what_is_generated_is_current(file: str, options: list[str]) -> None:
    said = run("fedcome_ray.settings", *options)  # a process without the plugins of other tests
    how = f"python -m fedcome_ray.settings {' '.join(options)} > docs/{file}"
    assert said.stdout == (DOCS / file).read_text(encoding="utf-8"), f"renew it: {how}"


def test_every_setting_of_every_choice_is_on_the_page() -> None:
    page = settings.reference()
    for name, registry in CHOICES.items():
        for choice, entry in registry.items():
            section = page.split(f"### {choice}\n")[1].split("\n### ")[0]
            own = set(entry.config.model_fields) - {registry.chosen_by, "sha256"}
            assert all(f"| `{name}.{field}` |" in section for field in own)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "integer", "exclusiveMinimum": 0}, "a whole number above 0"),
        ({"enum": ["a", "b"]}, "a or b"),
        ({"anyOf": [{"const": "full", "type": "string"}, {"type": "null"}]}, "full or null"),
    ],
)
def test_values_in_words(schema: dict[str, Any], expected: str) -> None:
    assert words(schema) == expected


def test_the_settings_of_a_plugin_are_listed_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (DOCS / "adding_a_method.md").read_text(encoding="utf-8")
    file = tmp_path / "momentum_listed.py"
    code = text.split("```python\n")[1].split("```")[0]
    file.write_text(code.replace('"momentum"', '"momentum_listed"'))
    registry = CHOICES["method"]
    try:
        assert settings.main(["--plugin", str(file)]) == 0
    finally:
        registry.pop("momentum_listed")
    said = capsys.readouterr().out
    assert "### momentum_listed\n" in said
    assert "| `method.beta` | a number | `0.1` |" in said
