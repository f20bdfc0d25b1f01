"""The actor that Tune hands trials to: it touches a trial's folder only when it runs the trial."""

from pathlib import Path
from typing import Any

import pytest
import ray

from fedcome_ray import datasets
from fedcome_ray.experiments.trial import Trial, parse_trial
from fedcome_ray.federation.shards import LocalShards
from fedcome_ray.runtime.placement import TrialPlace
from fedcome_ray.storage.lease import Lease
from fedcome_ray.storage.remote import Remote
from fedcome_ray.trials.folder import (
    CHECKPOINT,
    exclusive,
    kept_copy,
    read_result,
    read_rounds,
)
from fedcome_ray.trials.run import TrialRun

pytestmark = [
    pytest.mark.ray,
    # Tune's and Ray's own.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]

ROUNDS = 3
LONG = 100_000  # rounds


def trial_of(seed: int, rounds: int = ROUNDS) -> Trial:
    data = {"dataset": "digits", "num_clients": 10}
    return parse_trial({"data": data, "rounds": rounds, "seed": seed})


def config_of(*trials: Trial) -> dict[str, Any]:
    return {"keys": [trial.key for trial in trials]}


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The pools of shards that are made while a test runs."""
    from fedcome_ray.runtime import shards

    make, made = shards.ShardPool, []

    def note(place: TrialPlace) -> shards.ShardPool:
        made.append(make(place))
        return made[-1]

    monkeypatch.setattr(shards, "ShardPool", note)
    return made


@pytest.fixture
def actor(cluster: Any, tmp_path: Path) -> Any:
    return actor_in(tmp_path)


def actor_in(folder: Path, lease: Lease | None = None, pause_after: int | None = None) -> Any:
    """An actor in this process, with the first trial; its one shard is on Ray."""
    from ray import tune

    from fedcome_ray.runtime.populations import share
    from fedcome_ray.runtime.trial_actor import TrialActor

    trial = trial_of(0)
    known = [trial, trial_of(1), trial_of(0, LONG)]
    trainable = tune.with_parameters(
        TrialActor,
        trials={one.key: one.model_dump(mode="json") for one in known},
        populations=share({trial.data.model_dump_json(): datasets.load(trial.data)}),
        place=TrialPlace(1, cpus_per_shard=0.1),
        trials_folder=folder,
        lease=lease,
        plugins=[],
        command="python -m fedcome_ray.tune",
        init_params=None,
        pause_after=pause_after,
        system_metrics=False,
    )
    return trainable(config_of(trial))


def finish_elsewhere(trial: Trial, folder: Path) -> None:
    population = datasets.load(trial.data)
    run = TrialRun(trial, population, LocalShards(trial, population), folder)
    while not run.is_finished:
        run.advance(60)
    run.finish()


def news_at_the_end(actor: Any) -> Any:
    while True:
        answer = actor.step()
        if answer["done"]:
            return answer["news"][-1][1]


def test_one_actor_runs_one_trial_after_the_other(actor: Any, tmp_path: Path) -> None:
    for seed in (0, 1):
        assert seed == 0 or actor.reset_config(config_of(trial_of(seed)))
        assert news_at_the_end(actor).failure is None
        assert read_result(tmp_path / trial_of(seed).folder_name) is not None


def test_a_turn_of_several_trials_runs_them_all(actor: Any, tmp_path: Path) -> None:
    trials = trial_of(0), trial_of(1)
    actor.reset_config(config_of(*trials))
    told, is_done = [], False
    while not is_done:
        answer = actor.step()
        told, is_done = told + answer["news"], answer["done"]
    assert [key for key, news in told if news.is_finished] == [trial.key for trial in trials]
    assert all(read_result(tmp_path / trial.folder_name) for trial in trials)


def test_trials_that_a_turn_has_no_time_for_are_given_back_untouched(
    actor: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedcome_ray.runtime.trial_actor.TURN_SECONDS", 0.0)
    long, other = trial_of(0, LONG), trial_of(1)
    actor.reset_config(config_of(long, other))
    answers = [actor.step(), actor.step()]
    actor.cleanup()
    assert [answer["given_back"] for answer in answers] == [[other.key], []]
    assert not any(answer["done"] for answer in answers)  # the other trial goes on
    assert not (tmp_path / other.folder_name).exists()


def test_a_trial_that_tune_takes_away_again_is_left_alone(actor: Any, tmp_path: Path) -> None:
    # So it happens after the death of another actor: Tune starts a new one for its trial, finds an
    # idle one sooner, and uses the new one for something else.
    folder = tmp_path / trial_of(0).folder_name
    finish_elsewhere(trial_of(0), folder)
    history = read_rounds(folder)
    actor.reset_config(config_of(trial_of(1)))
    news_at_the_end(actor)
    assert read_rounds(folder) == history
    with exclusive(folder, patience=0):
        pass


def test_a_trial_that_somebody_else_has_finished_is_reported_with_its_history(
    actor: Any, tmp_path: Path
) -> None:
    folder = tmp_path / trial_of(0).folder_name
    finish_elsewhere(trial_of(0), folder)
    stamp = (folder / "result.json").stat().st_mtime_ns
    answer = actor.step()
    assert answer["done"]
    assert [one.number for one in answer["news"][0][1].rounds] == list(range(ROUNDS + 1))
    assert (folder / "result.json").stat().st_mtime_ns == stamp


def test_a_shard_that_dies_between_two_trials_is_replaced(pools: list[Any], actor: Any) -> None:
    news_at_the_end(actor)
    (pool,) = pools
    ray.kill(pool.actors[0])
    actor.reset_config(config_of(trial_of(1)))
    assert news_at_the_end(actor).failure is None


def test_a_failure_is_reported_with_its_cause_even_if_it_cannot_be_logged(
    actor: Any, tmp_path: Path
) -> None:
    folder = tmp_path / trial_of(0).folder_name
    folder.mkdir()
    (folder / "rounds.jsonl").mkdir()  # in the way
    (folder / "trial.log").mkdir()
    answer = actor.step()
    assert answer["done"]
    assert "rounds.jsonl" in answer["news"][0][1].failure


def test_an_actor_that_is_stopped_leaves_a_checkpoint(actor: Any, tmp_path: Path) -> None:
    long = trial_of(0, LONG)
    actor.reset_config(config_of(long))
    answer = actor.step()
    actor.cleanup()
    assert not answer["done"]
    folder = tmp_path / long.folder_name
    assert (folder / "checkpoint.safetensors").exists()
    assert len(read_rounds(folder)) == len(answer["news"][0][1].rounds) > 0


@pytest.mark.usefixtures("cluster")
def test_a_trial_in_a_storage_goes_on_in_another_process_and_leaves_nothing_on_its_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, trial = tmp_path / "node", trial_of(0)
    node.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(node))
    lease = Lease(Remote((tmp_path / "storage").as_uri()), 1)
    first = actor_in(Path("/nowhere"), lease, pause_after=1)
    assert news_at_the_end(first).is_paused
    kept = kept_copy(tmp_path / "copy" / trial.folder_name, lease)
    assert CHECKPOINT in kept.remote.marks()
    first.cleanup()
    second = actor_in(Path("/nowhere"), lease)
    assert news_at_the_end(second).num_restored == 1
    second.cleanup()
    kept.pull()
    finish_elsewhere(trial, tmp_path / "alone")
    results = read_result(kept.folder), read_result(tmp_path / "alone")
    assert results[0] is not None
    assert results[1] is not None
    assert results[0].params_sha256 == results[1].params_sha256
    assert CHECKPOINT not in kept.remote.marks()
    assert list(node.glob("fedcome-trials-*")) == []
