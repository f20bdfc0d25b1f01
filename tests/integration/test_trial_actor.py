"""The actor that Tune hands trials to: it touches a trial's folder only when it runs the trial."""

from pathlib import Path
from typing import Any

import pytest
import ray

from fedcome_ray import datasets
from fedcome_ray.experiments.trial import Trial, parse_trial
from fedcome_ray.federation.round import LocalShards
from fedcome_ray.launch.plan_old import Machine
from fedcome_ray.trials.run import TrialRun, exclusive, read_lines, read_result

pytestmark = [
    pytest.mark.ray,
    # Tune's and Ray's own.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]

ROUNDS = 3


def trial_of(seed: int, rounds: int = ROUNDS) -> Trial:
    data = {"dataset": "digits", "num_clients": 10}
    return parse_trial({"data": data, "rounds": rounds, "seed": seed})


def config_of(trial: Trial) -> dict[str, Any]:
    return {"spec": {"key": trial.key, "trial": trial.model_dump(mode="json")}}


@pytest.fixture
def actor(cluster: Any, tmp_path: Path) -> Any:
    """An actor in this process, with the first trial; its one shard is on Ray."""
    from ray import tune

    from fedcome_ray.runtime.trial_actor import TrialActor

    trial = trial_of(0)
    trainable = tune.with_parameters(
        TrialActor,
        populations=cluster.share({trial.data.model_dump_json(): datasets.load(trial.data)}),
        machine=Machine(1, cpus_per_shard=0.1),
        trials_folder=tmp_path,
        plugins=[],
        report_seconds=1.0,
        system_metrics=False,
    )
    return trainable(config_of(trial))


def finish_elsewhere(trial: Trial, folder: Path) -> None:
    population = datasets.load(trial.data)
    run = TrialRun(trial, population, LocalShards(trial, population), folder)
    while not run.is_finished:
        run.advance(60)
    run.finish()


def steps_to_the_end(actor: Any) -> dict[str, Any]:
    while True:
        news: dict[str, Any] = actor.step()
        if news["done"]:
            return news


def test_one_actor_runs_one_trial_after_the_other(actor: Any, tmp_path: Path) -> None:
    for seed in (0, 1):
        assert seed == 0 or actor.reset_config(config_of(trial_of(seed)))
        assert steps_to_the_end(actor)["failure"] is None
        assert read_result(tmp_path / trial_of(seed).folder_name) is not None


def test_a_trial_that_tune_takes_away_again_is_left_alone(actor: Any, tmp_path: Path) -> None:
    # So it happens after the death of another actor: Tune starts a new one for its trial, finds an
    # idle one sooner, and uses the new one for something else.
    folder = tmp_path / trial_of(0).folder_name
    finish_elsewhere(trial_of(0), folder)
    history = read_lines(folder)
    actor.reset_config(config_of(trial_of(1)))
    steps_to_the_end(actor)
    assert read_lines(folder) == history
    with exclusive(folder, patience=0):
        pass


def test_a_trial_that_somebody_else_has_finished_is_reported_with_its_history(
    actor: Any, tmp_path: Path
) -> None:
    folder = tmp_path / trial_of(0).folder_name
    finish_elsewhere(trial_of(0), folder)
    stamp = (folder / "result.json").stat().st_mtime_ns
    news = actor.step()
    assert news["done"]
    assert [line["round"] for line in news["lines"]] == list(range(ROUNDS))
    assert (folder / "result.json").stat().st_mtime_ns == stamp


def test_a_shard_that_dies_between_two_trials_is_replaced(actor: Any) -> None:
    steps_to_the_end(actor)
    ray.kill(actor._pool.actors[0])
    actor.reset_config(config_of(trial_of(1)))
    assert steps_to_the_end(actor)["failure"] is None


def test_a_failure_is_reported_with_its_cause_even_if_it_cannot_be_logged(
    actor: Any, tmp_path: Path
) -> None:
    folder = tmp_path / trial_of(0).folder_name
    folder.mkdir()
    (folder / "rounds.jsonl").mkdir()  # in the way
    (folder / "trial.log").mkdir()
    news = actor.step()
    assert news["done"]
    assert "rounds.jsonl" in news["failure"]


def test_an_actor_that_is_stopped_leaves_a_checkpoint(actor: Any, tmp_path: Path) -> None:
    long = trial_of(0, rounds=100_000)
    actor.reset_config(config_of(long))
    news = actor.step()
    actor.cleanup()
    assert not news["done"]
    folder = tmp_path / long.folder_name
    assert (folder / "checkpoint.safetensors").exists()
    assert len(read_lines(folder)) == len(news["lines"]) > 0
