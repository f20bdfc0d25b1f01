"""Where a trial can be repeated from, and from where it cannot."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from fedcome_ray.console.options import Locations
from fedcome_ray.errors import UserError
from fedcome_ray.experiments.trial import Trial, parse_trial
from fedcome_ray.launch import repeat, single
from tests.finished import ARITHMETIC, finish

TRIAL = parse_trial({"method": {"name": "fedprox", "mu": 0.5}, "rounds": 4, "seed": 7})


@pytest.fixture
def locations(tmp_path: Path) -> Locations:
    return Locations(tmp_path, f"sqlite:///{tmp_path / 'mlflow.db'}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "trial").mkdir()
    (tmp_path / "trial" / "trial.json").write_text(TRIAL.model_dump_json())
    return tmp_path / "trial"


def again(kept: repeat.Kept, *overrides: tuple[str, Any]) -> Trial:
    return parse_trial(single.draft_of(overrides, None, kept).settings)


def test_a_folder_and_its_file_of_settings_are_the_same_trial(
    folder: Path, locations: Locations
) -> None:
    for reference in (str(folder), str(folder / "trial.json")):
        assert again(repeat.find(reference, locations)) == TRIAL


def test_a_trial_is_repeated_with_a_change(folder: Path, locations: Locations) -> None:
    kept = repeat.find(str(folder), locations)
    assert again(kept, ("seed", 8)) == TRIAL.model_copy(update={"seed": 8})
    draft = single.draft_of([("seed", 8)], None, kept)
    assert (draft.origins["seed"], draft.origins["rounds"]) == ("--set", "--from")


def test_another_method_leaves_the_plugin_behind(folder: Path, locations: Locations) -> None:
    kept = repeat.Kept({**TRIAL.model_dump(mode="json"), "plugin": "3f2a"}, ())
    assert again(kept).plugin == "3f2a"
    assert again(kept, ("method.name", "fedavg")).plugin is None


def test_a_trial_starts_from_its_own_file_only(locations: Locations) -> None:
    kept = repeat.Kept({**TRIAL.model_dump(mode="json"), "init_digest": "3f2a"}, ())
    with pytest.raises(UserError, match="not the params that the trial started from"):
        single.draft_of([], torch.zeros(3), kept)


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("nowhere", "neither the folder of a trial nor the id of a run"),
        ("0" * 32, "there is no store `sqlite:///"),
        (".", "cannot read"),
    ],
)
def test_what_is_no_trial_is_refused(
    reference: str, says: str, locations: Locations, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=f"--from: .*{says}"):
        repeat.find(reference, locations)


def test_a_plugin_that_was_not_kept_must_be_given(folder: Path, locations: Locations) -> None:
    settings = {**TRIAL.model_dump(mode="json"), "method": {"name": "mine"}, "plugin": "3f2a"}
    (folder / "trial.json").write_text(json.dumps(settings))
    with pytest.raises(
        UserError, match=r"has no code of its method in plugins/; give it with --plugin"
    ):
        repeat.find(str(folder), locations)


def test_the_command_has_what_the_result_depended_on(
    folder: Path, locations: Locations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plain = finish(TRIAL, folder)
    said = repeat.command(folder, plain, locations, from_file=False)
    assert said == f"python -m fedcome_ray.run --from {folder} --output again"
    portable = finish(TRIAL, folder, computed_with=[{**ARITHMETIC, "portable": "true"}])
    elsewhere = Locations(folder, "", data_dir=Path("/data sets"))
    said = repeat.command(folder, portable, elsewhere, from_file=True)
    assert said.endswith("--portable --data-dir '/data sets' --init-model FILE")


def test_the_command_proposes_a_folder_that_is_not_there(
    folder: Path, locations: Locations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = finish(TRIAL, folder)
    for proposed in ("again", "again_2", "again_3"):
        said = repeat.command(folder, result, locations, from_file=False)
        assert said.endswith(f" --output {proposed}")
        Path(proposed).mkdir()
