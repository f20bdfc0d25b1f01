"""A trial's folder: any process can go on with it at any time, and nothing is lost or invented."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import load_file

from fedcome_ray import datasets
from fedcome_ray.datasets.population import Population
from fedcome_ray.errors import ConfigError, FedcomeError, ShardError, UserError
from fedcome_ray.experiments.trial import Trial, parse_trial
from fedcome_ray.federation.round import Round
from fedcome_ray.federation.shards import LocalShards
from fedcome_ray.trials import run as trials
from fedcome_ray.trials.folder import exclusive, read_result, read_rounds
from fedcome_ray.trials.run import TrialRun, check_fits, tail_accuracy

ROUNDS = 6
MIXED = [
    ("fedavg", "random"),
    ("scaffold", "random"),
    ("fedfv", "similarity"),  # a server that remembers clients, a sampler that remembers pairs
    ("feddc", "similarity"),
    ("fedcome", "similarity"),
    ("fedadam", "random"),
]


def trial_of(method: str = "scaffold", sampler: str = "random", **settings: Any) -> Trial:
    return parse_trial(
        {
            "data": {"dataset": "digits", "num_clients": 10},
            "model": {"name": "mlp", "hidden": [8]},
            "local": {"batch_size": 16, "lr": 0.1},
            "method": {"name": method},
            "sampler": {"name": sampler},
            "cohort_size": 4,
            "rounds": ROUNDS,
            "eval_every": 2,
            **settings,
        }
    )


@pytest.fixture(scope="module")
def population() -> Population:
    return datasets.load(trial_of().data)


Begin = Callable[..., TrialRun]


@pytest.fixture
def begin(population: Population, tmp_path: Path) -> Begin:
    """Open a trial's folder as a new process would."""

    def begin(trial: Trial | None = None, folder: str = "trial", num_shards: int = 1) -> TrialRun:
        trial = trial or trial_of()
        shards = LocalShards(trial, population, num_shards)
        return TrialRun(trial, population, shards, tmp_path / folder)

    return begin


def run_rounds(run: TrialRun, count: int) -> None:
    end = run.rounds_done + count
    while run.rounds_done < end:
        run.advance(0)


def outcome(run: TrialRun) -> tuple[Any, ...]:
    """Everything that a finished trial leaves, except for the time that it took."""
    while not run.is_finished:
        run.advance(60)
    run.finish()
    lines = read_rounds(run.folder)
    history = [
        (line.number, line.cohort, name, value)
        for line in lines
        for name, value in line.metrics.items()
        if "seconds" not in name
    ]
    result = read_result(run.folder)
    assert result is not None
    clients = pd.read_parquet(run.folder / "clients.parquet").to_json(double_precision=15)
    return result.params_sha256, history, clients


@pytest.mark.parametrize("stop", [0, 1, 3, ROUNDS - 1])
@pytest.mark.parametrize(("method", "sampler"), MIXED)
def test_an_interruption_does_not_change_a_bit(
    method: str, sampler: str, stop: int, begin: Begin
) -> None:
    trial = trial_of(method, sampler)
    undisturbed = outcome(begin(trial, "undisturbed"))
    first = begin(trial)
    run_rounds(first, stop)
    first.checkpoint()
    assert outcome(begin(trial)) == undisturbed


def test_an_interruption_after_the_first_evaluation_does_not_change_a_bit(begin: Begin) -> None:
    undisturbed = outcome(begin(folder="undisturbed"))
    first = begin()
    first.advance(0)
    assert (len(first.rounds), first.rounds_done) == (1, 0)
    first.checkpoint()
    again = begin()
    assert [entry.number for entry in again.rounds] == [0]
    assert outcome(again) == undisturbed


def test_the_history_begins_with_the_initial_model(population: Population, begin: Begin) -> None:
    run = begin(trial_of(eval_train_every=3))
    initial = LocalShards(run.trial, population).evaluate(run.server.params)
    outcome(run)
    first = read_rounds(run.folder)[0]
    assert (first.number, first.cohort) == (0, ())
    assert first.metrics["accuracy/test"] == initial.accuracy
    clients = pd.read_parquet(run.folder / "clients.parquet").query("round == 0")
    assert np.array_equal(clients["test_loss"], initial.client_loss.astype(np.float32))
    assert clients["train_loss"].notna().all()


def test_the_last_round_has_the_mean_accuracy_of_the_last_tenth(begin: Begin) -> None:
    run = begin(trial_of(rounds=20, eval_every=1))
    outcome(run)
    accuracy = [entry.metrics["accuracy/test"] for entry in run.rounds]
    assert run.rounds[-1].metrics["accuracy/tail"] == np.mean(accuracy[19:])
    assert not any("accuracy/tail" in entry.metrics for entry in run.rounds[:-1])


def entry(number: int, accuracy: float | None) -> Round:
    found = {} if accuracy is None else {"accuracy/test": accuracy}
    return Round(number, (), found, {}, 0.0)


@pytest.mark.parametrize(
    ("accuracies", "expected"),
    [
        ([0.1, 0.7], 0.7),  # of few rounds, the last
        ([0.0] * 18 + [0.3, 0.5, 0.7], 0.6),  # rounds 19 and 20 of 20
        ([0.0] * 28 + [0.5, None, 0.8], 0.65),  # 28 and 30, as 29 was not evaluated
    ],
)
def test_the_tail_is_the_last_tenth_of_the_evaluated_rounds(
    accuracies: list[float | None], expected: float
) -> None:
    rounds = [entry(number, accuracy) for number, accuracy in enumerate(accuracies)]
    assert tail_accuracy(rounds) == pytest.approx(expected)


def test_rounds_after_the_checkpoint_are_run_again(begin: Begin) -> None:
    undisturbed = outcome(begin(folder="undisturbed"))
    killed = begin()
    run_rounds(killed, 2)
    killed.checkpoint()
    run_rounds(killed, 2)
    again = begin()
    assert again.rounds_done == 2
    assert outcome(again) == undisturbed


def test_a_trial_can_go_on_with_another_number_of_shards(begin: Begin) -> None:
    undisturbed = outcome(begin(folder="undisturbed"))
    first = begin(num_shards=3)
    run_rounds(first, 3)
    first.checkpoint()
    assert outcome(begin(num_shards=2)) == undisturbed


def test_without_a_checkpoint_a_trial_starts_anew(begin: Begin) -> None:
    run_rounds(begin(), 3)
    assert begin().rounds == []


class DyingShards(LocalShards):
    """Shards whose process dies in the middle of a round, or while it is saved, and is replaced."""

    def __init__(self, trial: Trial, population: Population, deaths: list[str]) -> None:
        super().__init__(trial, population, num_shards=2)
        self.arguments, self.deaths = (trial, population), deaths

    def train(self, *arguments: Any) -> Any:
        reports = super().train(*arguments)
        self._die_in("train")
        return reports

    def export_states(self) -> Any:
        self._die_in("checkpoint")
        return super().export_states()

    def rebuild(self) -> None:
        super().__init__(*self.arguments, num_shards=2)

    def _die_in(self, place: str) -> None:
        if self.deaths and self.deaths[0] == place:
            self.deaths.pop(0)
            raise ShardError("a shard died")


@pytest.mark.parametrize("deaths", [["train", "train"], ["checkpoint"], ["train", "checkpoint"]])
def test_the_death_of_shards_does_not_change_a_bit(
    deaths: list[str],
    population: Population,
    begin: Begin,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    undisturbed = outcome(begin(folder="undisturbed"))
    monkeypatch.setattr(trials, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(trials, "CHECKPOINT_SHARE", float("inf"))  # after every round
    shards = DyingShards(trial_of(), population, list(deaths))
    run = TrialRun(trial_of(), population, shards, tmp_path / "trial")
    assert outcome(run) == undisturbed
    assert run.recoveries == len(deaths)


def test_shards_that_keep_dying_end_the_trial(population: Population, tmp_path: Path) -> None:
    shards = DyingShards(trial_of(), population, ["train"] * 100)
    with pytest.raises(ShardError):
        TrialRun(trial_of(), population, shards, tmp_path).advance(60)


def test_the_first_news_after_a_restart_are_the_whole_history(begin: Begin) -> None:
    first = begin()
    run_rounds(first, 3)
    first.checkpoint()
    again = begin()
    assert again.num_restored == 3
    assert [line.number for line in again.advance(0)] == [0, 1, 2, 3, 4]
    assert [line.number for line in again.advance(0)] == [5]


def test_a_torn_last_line_is_not_part_of_the_history(begin: Begin) -> None:
    first = begin()
    run_rounds(first, 2)
    with (first.folder / "rounds.jsonl").open("a") as file:
        file.write('{"round": 3, "metr')
    assert [line.number for line in read_rounds(first.folder)] == [0, 1, 2]


def damage(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def test_a_damaged_checkpoint_is_named_with_the_remedy(begin: Begin) -> None:
    run = begin()
    run_rounds(run, 2)
    run.checkpoint()
    damage(run.folder / "checkpoint.safetensors")
    with pytest.raises(FedcomeError, match=r"checkpoint\.safetensors is damaged .*delete it"):
        begin()
    (run.folder / "checkpoint.safetensors").unlink()
    assert begin().rounds == []


@pytest.mark.parametrize(
    "content", [b"", b'{"round": 1}\n', b'{"round": 0, "metr\n{"round": 1}\n', b"\x00\xff\n" * 4]
)
def test_a_history_that_does_not_reach_the_checkpoint_is_refused(
    content: bytes, begin: Begin
) -> None:
    run = begin()
    run_rounds(run, 2)
    run.checkpoint()
    (run.folder / "rounds.jsonl").write_bytes(content)
    with pytest.raises(FedcomeError, match=r"rounds\.jsonl is damaged.*delete .*to start .*anew"):
        begin()


def test_a_damaged_result_is_named_with_the_remedy(begin: Begin) -> None:
    run = begin()
    outcome(run)
    damage(run.folder / "result.json")
    with pytest.raises(UserError, match=r"result\.json is damaged .*delete it to run"):
        read_result(run.folder)


def test_damaged_settings_are_written_again(begin: Begin) -> None:
    run = begin()
    damage(run.folder / "trial.json")
    settings = json.loads((begin().folder / "trial.json").read_text())
    assert Trial.model_validate(settings) == trial_of()


def test_a_finished_trial_leaves_its_results_and_no_checkpoint(begin: Begin) -> None:
    run = begin()
    run_rounds(run, 2)
    run.checkpoint()
    outcome(run)
    names = {path.name for path in run.folder.iterdir()}
    assert names == {
        "trial.json",
        "rounds.jsonl",
        "model.safetensors",
        "clients.parquet",
        "population.parquet",
        "result.json",
    }


def test_the_saved_model_is_the_servers(begin: Begin) -> None:
    run = begin()
    outcome(run)
    saved = load_file(run.folder / "model.safetensors")["params"]
    assert np.array_equal(saved, run.server.params.numpy())


def test_clients_are_listed_in_the_evaluated_rounds_only(begin: Begin) -> None:
    run = begin(trial_of(eval_train_every=3))
    outcome(run)
    table = pd.read_parquet(run.folder / "clients.parquet")
    assert sorted(set(table["round"])) == [0, 2, 3, 4, 6]
    assert len(table) == 5 * 10
    tested = table.groupby("round")["test_loss"].apply(lambda column: column.notna().all())
    assert tested.to_dict() == {0: True, 2: True, 3: False, 4: True, 6: True}
    trained = table.groupby("round")["train_loss"].apply(lambda column: column.notna().all())
    assert trained.to_dict() == {0: True, 2: False, 3: True, 4: False, 6: True}


def test_training_can_start_from_given_params(population: Population, tmp_path: Path) -> None:
    trial = trial_of(local={"lr": 1e-12})
    dim = check_fits(trial, population).dim
    given = torch.linspace(-0.1, 0.1, dim)
    run = TrialRun(trial, population, LocalShards(trial, population), tmp_path, given)
    run_rounds(run, 1)
    assert torch.allclose(run.server.params, given, atol=1e-6)


def test_one_process_at_a_time_holds_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "trial"
    refused = pytest.raises(FedcomeError, match="another process is at work in")
    with exclusive(folder), refused, exclusive(folder, patience=0):
        pass
    with exclusive(folder, patience=0):
        pass


def test_a_cohort_above_an_npz_population_is_refused_when_the_population_is_known(
    population: Population,
) -> None:
    trial = parse_trial({"data": {"dataset": "npz:some.npz"}, "cohort_size": 11})
    with pytest.raises(ConfigError, match="population of 10 clients, got 11"):
        check_fits(trial, population)


def test_a_client_alone_can_be_a_federation(tmp_path: Path) -> None:
    data = {"dataset": "synthetic", "num_clients": 1, "examples_per_client": 200}
    trial = trial_of(data=data, cohort_size=1, seed=2**63)
    alone = datasets.load(trial.data)
    run = TrialRun(trial, alone, LocalShards(trial, alone), tmp_path)
    outcome(run)
    assert run.rounds[-1].metrics["accuracy/test"] > 0.1
