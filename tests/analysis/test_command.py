"""`python -m analysis` on a real store."""

import json
import re
from pathlib import Path

import pytest
from mlflow import MlflowClient

from analysis.__main__ import main
from analysis.results import load, newest_launch
from tests.analysis.conftest import UNNAMED_METRIC, log_trial, trial

# MLflow's own use of SQLAlchemy.
pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning")


@pytest.fixture(scope="module")
def written(store: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where one run of the command has written, and logged, everything."""
    output = tmp_path_factory.mktemp("analysis")
    assert main(["--grid", "all", "--tracking-uri", store, "--output", str(output)]) == 0
    return output / "analysis"


def test_tables_figures_and_report_are_written(written: Path) -> None:
    tables = {path.name for path in (written / "tables").iterdir()}
    for name in ("full_participation", "fairness_indices", "datasets", "search_space", "claims"):
        assert {f"{name}.md", f"{name}.csv", f"{name}.tex"} <= tables
    figures = {path.name for path in (written / "figures").iterdir()}
    assert {"full_participation_convergence.png", "fairness_accuracy.svg"} <= figures
    text = (written / "tables" / "full_participation.md").read_text(encoding="utf-8")
    assert "72.00 ± 2.00" in text
    assert "9 of 10 trials finished; 1 failed" in text


def test_what_was_found_is_written_in_sentences(written: Path) -> None:
    text = (written / "report.md").read_text(encoding="utf-8")
    assert "FedCOME was about level with FedAvg" in text
    assert "Grid sensitivity has not been run: stable." in text


def test_the_page_of_markdown_has_tables_figures_and_provenance(written: Path) -> None:
    text = (written / "report.md").read_text(encoding="utf-8")
    for file in (written / "tables").glob("full_participation*.md"):
        if "metrics" not in file.stem:
            assert file.read_text(encoding="utf-8") in text
    pictures = re.findall(r"!\[[^\]]*\]\((.*?)\)", text)
    assert "figures/full_participation_convergence.png" in pictures
    assert all((written / picture).is_file() for picture in pictures)
    assert "| trials run by commit | " in text
    assert "sqlite:" not in text  # a place on this machine says nothing to others


def test_the_report_is_complete_in_itself(written: Path) -> None:
    page = (written / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"(src|href)=\"(?!#|data:)", page)
    assert not re.search(r"url\((?!#)", page)
    listed = re.search('<script type="application/json" id="trials-data">(.*?)</script>', page)
    assert listed is not None
    runs = {f"run-{row[0]}" for row in json.loads(listed[1])["rows"]}  # made when asked for
    targets = re.findall(r'\bid="([^"]+)"', page)
    assert len(targets) == len(set(targets))
    assert set(re.findall(r'href="#([^"]+)"', page)) <= {*targets, *runs}
    assert 'sensitivity</th><td></td><td class="words">not run' in page


def test_a_metric_that_nobody_named_is_in_the_report_folded_away(written: Path) -> None:
    page = (written / "report.html").read_text(encoding="utf-8")
    fold = re.search(r'<section id="fairness">.*?<details>(.*?)</details>', page, re.DOTALL)
    assert fold is not None
    assert "<summary>Other metrics</summary>" in fold[1]
    assert (
        f'<th scope="row">{UNNAMED_METRIC}</th><td>0.125</td><td>0.125</td><td>0.125</td>'
        in fold[1]
    )
    assert "accuracy/test" not in fold[1]
    assert (written / "tables" / "fairness_other_metrics.csv").exists()


def test_the_report_is_logged_to_the_newest_launch(written: Path, store: str) -> None:
    client = MlflowClient(store)
    experiment = client.get_experiment_by_name("full_participation")
    launch = newest_launch(client, experiment.experiment_id)
    logged = {item.path for item in client.list_artifacts(launch.info.run_id, "analysis")}
    assert {"analysis/report.html", "analysis/full_participation.tex"} <= logged
    assert "analysis/fairness.md" not in logged


def test_one_grid_and_one_format(store: str, tmp_path: Path) -> None:
    command = ["--grid", "fairness", "--tracking-uri", store, "--output", str(tmp_path)]
    assert main([*command, "--format", "csv", "--no-log"]) == 0
    assert {path.suffix for path in (tmp_path / "analysis" / "tables").iterdir()} == {".csv"}
    assert not list(tmp_path.rglob("*.html"))


def test_a_grid_whose_trials_all_failed_at_once_is_shown_as_such(
    store: str, tmp_path: Path
) -> None:
    client = MlflowClient(store)
    experiment = client.create_experiment("hopeless")
    log_trial(client, experiment, trial("fedcome", 0, grid="hopeless", status="FAILED"), tmp_path)
    command = ["--grid", "hopeless", "--tracking-uri", store, "--output", str(tmp_path)]
    assert main([*command, "--no-log"]) == 0
    client.delete_experiment(experiment)
    text = (tmp_path / "analysis" / "tables" / "hopeless.md").read_text(encoding="utf-8")
    assert "| FedCOME |  | failed |" in text
    assert "0 of 1 trials finished; 1 failed" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--grid", "fairnes"], "did you mean `fairness`?"),
        (["--grid", "sensitivity"], "`sensitivity` is not in this store"),
        (["--grid", "fairness", "--profile", "papers"], "did you mean `paper`?"),
        (["--grid", "all", "--profile", "mini"], "no grid has the profile `mini`"),
        (["--grid", "all", "--tracking-uri", "sqlite:////nowhere/mlflow.db"], "there is no store"),
        (["--grid", "all", "--tracking-uri", "http://127.0.0.1:1"], "no MLflow server answers"),
        (["--grid", "all", "--tracking-uri", "nonsense"], "is not a URI"),
        (["--grid", "all", "--output", "/proc/nowhere"], "--output: cannot write"),
    ],
)
def test_mistakes_are_explained_in_one_message(
    words: list[str], message: str, store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--tracking-uri", store, "--output", str(tmp_path), *words]
    assert main(command) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert "Traceback" not in error


def test_an_empty_or_damaged_store_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mlflow.db").write_text("this is no database")
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    assert main(["--grid", "all", "--tracking-uri", uri, "--output", str(tmp_path)]) == 2
    assert "not a database; move that file away" in capsys.readouterr().err


def test_a_store_without_trials_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("analysis.results.stored_grids", lambda client: {})
    monkeypatch.setattr("analysis.results.connect", lambda uri: None)
    (tmp_path / "mlflow.db").touch()
    assert main(["--grid", "all", "--output", str(tmp_path)]) == 2
    assert "holds no trial" in capsys.readouterr().err


def test_an_unknown_format_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--grid", "all", "--format", "pdf"])
    assert "allowed: md, csv, tex, html" in capsys.readouterr().err


def test_a_trial_that_two_profiles_share_counts_in_both(tmp_path: Path) -> None:
    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    experiment = client.create_experiment("full_participation", (tmp_path / "artifacts").as_uri())
    for profile in ("mini", "paper"):
        rows = trial("fedcome", 0, 30.0, 70.0, profile=profile).assign(trial_key="shared")
        log_trial(client, experiment, rows, tmp_path)
    log_trial(client, experiment, trial("fedcome", 1, 30.0, 72.0), tmp_path)
    trials = load(client, experiment).drop_duplicates("run_id")
    assert trials.groupby("profile").size().to_dict() == {"mini": 1, "paper": 2}
