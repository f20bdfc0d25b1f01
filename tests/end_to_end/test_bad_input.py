"""A user's mistake: one clear message, exit code 2, no traceback, nothing started."""

import json
from pathlib import Path

import pytest
import torch

from fedcome_ray import tune
from fedcome_ray.run import main as run_main

GRID = ["--grid", "partial_participation"]
DRY = ["--axis", "seed=0", "--dry-run"]
MANY = f"seed={','.join(map(str, range(1, 201)))}"
SEARCH = ["--grid", "search", "--search", "asha"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--grid", "partial_partisipation"], "did you mean `partial_participation`?"),
        (["--grid", "nowhere.yaml"], "cannot read `nowhere.yaml`"),
        ([*GRID, "--profile", "quik"], "did you mean `quick`?"),
        ([*GRID, "--set", "roundz=5"], "did you mean `rounds`?"),
        ([*GRID, "--set", "local.lrr=5"], "local.lrr: there is no such setting"),
        ([*GRID, "--set", "method.name=fedavgg"], "did you mean `fedavg`?"),
        ([*GRID, "--set", "rounds=many"], "rounds: input should be a valid integer"),
        ([*GRID, "--set", "rounds=0"], "rounds: input should be greater than 0, got `0`"),
        ([*GRID, "--set", "rounds"], "expected `name=value`, got `rounds`"),
        ([*GRID, "--set", "participation=0"], "participation: input should be greater than 0"),
        ([*GRID, "--set", "participation=null", "--set", "cohort_size=51"], "population of 50"),
        ([*GRID, "--set", "cohort_size=5"], "`participation` or `cohort_size`, not both"),
        ([*GRID, "--set", "data.dataset=digit"], "did you mean `digits`?"),
        ([*GRID, "--set", "model.name=conv4"], "conv4"),
        ([*GRID, "--plugin", "nowhere.py"], "nowhere.py"),
        ([*GRID, "--data-dir", "/nowhere"], "--data-dir: cannot read `/nowhere`"),
        ([*GRID, "--best", "nowhere/best.yaml"], "--best: there is no folder `nowhere`"),
        ([*GRID, "--best", "."], "--best: `.` is a folder; give the path of a file"),
        ([*GRID, "--best", "/dev/null"], "--best: `/dev/null` is not a file; give the path of"),
        ([*GRID, "--best", "b" * 250], "File name too long; give the path of a file in a folder"),
        ([*GRID, "--set", "local.lr=1e300"], "local.lr: input should be less than or equal to"),
        ([*GRID, "--address", "127.0.0.1:1"], "nothing listens at `127.0.0.1:1`"),
        ([*GRID, "--address", "ray://h:10001"], "give the command to `ray job submit`"),
        ([*GRID, "--address", "h:1", "--num-cpus", "2"], "num_cpus: only a private Ray"),
        ([*GRID, "--object-store-memory", "9"], "object_store_memory: expected at least 75 MB"),
        ([*GRID, "--address", "here"], "expected HOST:PORT or `auto`, got `here`"),
        ([*GRID, "--tracking-uri", "http://127.0.0.1:1"], "no MLflow server answers"),
        ([*GRID, "--tracking-uri", "somewhere"], "`somewhere` is not a URI"),
        ([*GRID, "--tracking-uri", "http://a b:1"], "no MLflow server answers at `http://a b:1`"),
        ([*GRID, "--tracking-uri", "http://h:99999999"], "no MLflow server answers"),
        ([*GRID, "--address", f"h:{'9' * 300}"], "expected HOST:PORT or `auto`, got `h:999"),
        ([*GRID, "--address", "h:²"], "expected HOST:PORT or `auto`, got `h:²`"),
        ([*GRID, "--address", "h:0"], "expected HOST:PORT or `auto`, got `h:0`"),
        ([*GRID, "--address", f"{'h' * 64}:80"], "nothing listens at `hhh"),
        ([*GRID, "--data-dir", "~no such user/x"], "--data-dir: `~no such user/x`"),
        ([*GRID, "--output", "~no such user/x"], "--output: `~no such user/x`"),
        (
            [*GRID, "--set", "rounds=0x_"],
            "--set rounds: `0x_` is not a YAML value: ",
        ),
        ([*GRID, "--set", "rounds=" + "9" * 300], "needs more than 64 bits"),
        (["--axis", "seed=0,2024-99-99"], "`2024-99-99` is no timestamp"),
        ([*GRID, "--set", "local.weight_decay=1e300"], "`weight_decay` must fit into 32 bits"),
        ([*GRID, "--set", "local.weight_decay=1e32"], "`lr` times `weight_decay`"),
        ([*GRID, "--set", "method.name=fedprox", "--set", "method.mu=1e39"], "`mu` must fit into"),
        (["--axis", MANY, "--axis", MANY.replace("seed", "rounds")], "product is 40,000 trials"),
        ([*DRY, "--set", "data.num_clients=1000000000"], "1000000000 clients cannot share 1438"),
        ([*DRY, "--set", "rounds=1000000000000"], "rounds: the history: it would take about"),
        ([*DRY, "--set", "model.hidden=[1000000000]"], "a client in training: it would take about"),
        ([], "what to run? --grid NAME or --axis NAME=V1,V2"),
        (["--axis", "seed="], "--axis seed: expected values with commas between"),
        (["--axis", "sead=1,2"], "did you mean `seed`?"),
        (["--axis", "seed=1", "--axis", "seed=2"], "--axis seed: given twice"),
        (["--axis", "seed=1", "--set", "seed=2"], "--axis seed: also given as --set"),
        (["--axis", "seed=1", "--profile", "paper"], "--profile: only a grid has profiles"),
        (["--axis", "seed=1", "--search", "asha"], "--search: the grid has no `space`"),
        ([*SEARCH, "--samples", "99999999999"], "--samples: at most 20,000, got `99999999999`"),
        ([*DRY, "--num-shards", "1000000000"], "num_shards: at most 10,000, got `1000000000`"),
        ([*GRID, "--tracking-uri", ""], "`` is not a URI"),
        ([*GRID, "--tracking-uri", "http://me:secret@127.0.0.1:1"], "`http://***@127.0.0.1:1`"),
        ([*GRID, "--init-model", "/dev/zero"], "--init-model: cannot read `/dev/zero`: not a file"),
        ([*GRID, "--list-trials"], "--list-trials: only a plan lists trials"),
        (
            [*SEARCH, "--set", "method.name=fedprox", "--axis", "method.mu=1,2"],
            "--axis method.mu: the search draws it",
        ),
    ],
)
def test_a_mistake_is_named_with_what_is_allowed(
    arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = tune.main(["--output", str(tmp_path / "results"), *arguments])
    message = capsys.readouterr().err
    assert code == 2
    assert says in message
    assert "error: " in {line[:7] for line in message.splitlines()}
    assert len(message.splitlines()) < 20


def test_an_output_folder_that_takes_no_files_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert tune.main([*GRID, "--output", str(tmp_path / "file" / "results")]) == 2
    assert "--output: cannot write to" in capsys.readouterr().err


def test_an_output_folder_that_no_store_can_have_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tune.main([*GRID, "--dry-run", "--output", str(tmp_path / "a%20b")]) == 2
    assert "something like `%20`" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused_before_anything_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_main(["--device", "gpu", "--output", str(tmp_path / "results")]) == 2
    assert "--device: no GPU to compute on: PyTorch" in capsys.readouterr().err
    assert not (tmp_path / "results" / "trials").exists()


@pytest.mark.parametrize("option", ["--num-shards", "--cpus-per-shard", "--log-every"])
@pytest.mark.parametrize("value", ["9" * 5000 + "x", "nan", "abc", "\u00b2", "-1", "0", ""])
def test_a_number_that_is_none_is_named_in_short(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        tune.main([*GRID, f"{option}={value}"])
    said = capsys.readouterr().err.splitlines()[-1]
    assert raised.value.code == 2
    assert f"argument {option}: expected a " in said
    assert len(said) < 400


def test_a_broken_grid_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grid = tmp_path / "mine.yaml"
    grid.write_text("axes: [1, 2")
    assert tune.main(["--grid", str(grid), "--output", str(tmp_path)]) == 2
    assert "mine.yaml is not valid YAML" in capsys.readouterr().err
    grid.write_text("description: d\nprofiles: {quick: {}}\naxis: {}\n")
    assert tune.main(["--grid", str(grid), "--output", str(tmp_path)]) == 2
    assert "axis: there is no such setting" in capsys.readouterr().err


def test_a_model_that_is_none_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.safetensors").write_text(json.dumps({}))
    where = ["--output", str(tmp_path / "results")]
    assert run_main(["--init-model", str(tmp_path / "model.safetensors"), *where]) == 2
    assert "--init-model: cannot read" in capsys.readouterr().err
    assert run_main(["--init-model", str(tmp_path / "nothing"), *where]) == 2
    assert "--init-model: cannot read" in capsys.readouterr().err
