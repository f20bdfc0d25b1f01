"""Trials and grids from Python."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import fedcome_ray
from fedcome_ray import Trial, results, run, run_grid
from fedcome_ray.errors import UserError
from tests.processes import answer_of

TRIAL = Trial(
    data={"dataset": "digits", "num_clients": 10},
    method={"name": "scaffold"},
    cohort_size=3,
    rounds=4,
    eval_every=2,
)


@pytest.fixture(scope="module")
def result() -> fedcome_ray.Result:
    return run(TRIAL)


def test_every_name_of_the_face_is_there() -> None:
    for name in fedcome_ray.__all__:
        assert getattr(fedcome_ray, name) is not None
    assert set(fedcome_ray.__all__) <= set(dir(fedcome_ray))
    with pytest.raises(AttributeError, match="no attribute `tuna`"):
        fedcome_ray.tuna  # noqa: B018


def test_rounds_are_rows_and_metrics_columns(result: fedcome_ray.Result) -> None:
    assert result.rounds["round"].tolist() == [0, 1, 2, 3, 4]
    known = result.rounds["accuracy/test"].notna().tolist()
    assert known == [True, False, True, False, True]  # evaluated every other round
    assert result.rounds["accuracy/test"].iloc[-1] == result.final["accuracy/test"]
    assert (result.rounds["seconds/round"] > 0).all()


def test_clients_are_rows_of_evaluated_rounds(result: fedcome_ray.Result) -> None:
    assert len(result.clients) == 3 * 10
    assert {"round", "client", "test_accuracy"} <= set(result.clients.columns)


def test_the_model_computes_what_the_trial_measured(result: fedcome_ray.Result) -> None:
    from fedcome_ray import datasets

    test = datasets.load(TRIAL.data).test
    with torch.no_grad():
        logits = result.model()(torch.from_numpy(test.examples.x))
    hits = (logits.argmax(1).numpy() == test.examples.y)[test.order]
    assert hits.mean() == pytest.approx(result.final["accuracy/test"])
    parameters = torch.cat([p.detach().flatten() for p in result.model().parameters()])
    assert torch.equal(parameters, result.params)


def test_the_model_can_be_trained_further(result: fedcome_ray.Result) -> None:
    module = result.model()
    module(torch.zeros(2, 1, 8, 8)).sum().backward()
    assert all(parameter.grad is not None for parameter in module.parameters())


@pytest.mark.filterwarnings("ignore")  # MLflow's own
def test_a_kept_trial_is_read_back_and_not_run_again(
    result: fedcome_ray.Result, tmp_path: Path
) -> None:
    kept = run(TRIAL, tmp_path)
    (folder,) = (tmp_path / "trials").iterdir()
    before = (folder / "result.json").stat().st_mtime_ns
    again = run(TRIAL, tmp_path)
    assert (folder / "result.json").stat().st_mtime_ns == before
    assert torch.equal(kept.params, again.params)
    assert torch.equal(kept.params, result.params)
    found = results(tmp_path)
    assert len(found) == 1
    assert found.trials["method.name"].tolist() == ["scaffold"]
    assert found.trials["accuracy/test"].tolist() == [result.final["accuracy/test"]]
    assert found.rounds["round"].tolist() == [0, 1, 2, 3, 4]
    pd.testing.assert_frame_equal(found[TRIAL.key].clients, kept.clients)


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no folder `trials`"):
        results(tmp_path)


def test_nothing_is_left_of_a_trial_that_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(TRIAL)
    assert list(tmp_path.iterdir()) == []


def test_neither_ray_nor_mlflow_is_imported_for_a_trial_in_this_process() -> None:
    code = (
        "import json, sys\nfrom fedcome_ray import Trial, run\n"
        "run(Trial(rounds=1))\nprint(json.dumps(sorted(sys.modules)))"
    )
    assert not {"ray", "mlflow"} & set(answer_of(code))


def test_the_function_run_works_beside_the_command_run() -> None:
    code = (
        "import json\nimport fedcome_ray, fedcome_ray.run\n"
        "from fedcome_ray import Trial\n"
        "final = fedcome_ray.run(Trial(rounds=1)).final\n"
        "print(json.dumps([fedcome_ray.run.main.__name__, final['accuracy/test']]))"
    )
    name, accuracy = answer_of(code)
    assert name == "main"
    assert accuracy == pytest.approx(run(Trial(rounds=1)).final["accuracy/test"])


def test_the_face_is_imported_at_once() -> None:
    code = "import json, sys, fedcome_ray; print(json.dumps(sorted(sys.modules)))"
    assert not {"torch", "numpy", "pandas", "ray"} & set(answer_of(code))


@pytest.mark.ray
def test_a_grid_gives_frames_side_by_side(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom fedcome_ray import run_grid\n"
        "settings = {'rounds': 2, 'method.name': 'fedavg', 'data.num_clients': 10}\n"
        "axes = {'seed': [5]}\n"
        "found = run_grid('heterogeneity', set=settings, axes=axes, output=sys.argv[1])\n"
        "found.trials.to_csv(sys.argv[2])\nassert len(found.rounds) == 9, found.rounds\n"
    )
    table = tmp_path / "trials.csv"
    command = [sys.executable, "-c", code, str(tmp_path / "results"), str(table)]
    subprocess.run(command, check=True, timeout=280)
    trials = pd.read_csv(table)
    assert sorted(trials["data.partition.classes"]) == [2, 3, 4]
    assert set(trials["seed"]) == {5}
    assert np.isfinite(trials["accuracy/test"]).all()


NOTEBOOK = """
from fedcome_ray import Trial, run
result = run(Trial(data={"dataset": "digits", "num_clients": 10}, rounds=3))
print(len(result.rounds))
"""


def test_a_notebook_shows_a_bar() -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    cell = nbformat.v4.new_code_cell(NOTEBOOK)
    notebook = nbformat.v4.new_notebook(cells=[cell])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    shown = [out["data"]["text/html"] for out in cell.outputs if "data" in out]
    assert len(shown) == 1  # one bar, updated in place
    assert '<progress value="1.0000"' in shown[0]
    assert [out["text"] for out in cell.outputs if out["output_type"] == "stream"] == ["4\n"]


def test_a_method_of_ones_own_is_run_and_read_back(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "adding_a_method.md").read_text(encoding="utf-8")
    (tmp_path / "momentum.py").write_text(text.split("```python\n")[1].split("```")[0])
    code = (
        "import json, sys\nfrom fedcome_ray import results, run\n"
        "settings = {'method': {'name': 'momentum'}, 'rounds': 2}\n"
        "found = run(settings, sys.argv[1], plugins=['momentum.py'])\n"
        "(key,) = results(sys.argv[1])\n"
        "again = results(sys.argv[1], plugins=['momentum.py'])[key]\n"
        "assert (again.params == found.params).all()\n"
        "print(repr(again))\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "results")]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("<Result of momentum-digits")


@pytest.mark.parametrize("wrong", [{"num_shards": 0}, {"num_shards": "2"}, {"plugins": "file.py"}])
def test_wrong_arguments_are_refused_at_once(wrong: dict[str, object]) -> None:
    with pytest.raises(UserError, match=next(iter(wrong))):
        run(TRIAL, **wrong)  # type: ignore[arg-type]


def test_a_grid_needs_a_name_or_axes() -> None:
    with pytest.raises(UserError, match="give the name of a grid, or axes"):
        run_grid()


def test_a_trial_that_starts_from_a_file_is_not_run_from_the_seed() -> None:
    with pytest.raises(UserError, match="init_digest"):
        run(TRIAL.model_copy(update={"init_digest": "00"}))


def test_a_trial_can_be_run_in_a_thread() -> None:
    with ThreadPoolExecutor(1) as pool:
        threaded = pool.submit(run, TRIAL).result()
    assert torch.equal(threaded.params, run(TRIAL).params)
