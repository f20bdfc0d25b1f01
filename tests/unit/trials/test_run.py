"""A trial's folder: any process can go on with it at any time, and nothing is lost or invented."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import load_file

from fedcome_ray import datasets
from fedcome_ray.datasets.population import Examples, Population, split_in_order
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


def test_bytes_add_up_from_the_initial_model_on(begin: Begin) -> None:
    run = begin()  # SCAFFOLD sends two vectors down and one up
    outcome(run)
    sent = 4 * 3 * 4 * len(run.server.params)  # floats, vectors, clients
    rounds = read_rounds(run.folder)
    assert [one.metrics["comm/total_bytes"] for one in rounds] == [
        number * sent for number in range(ROUNDS + 1)
    ]


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


@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_training_on_ones_own_for_an_evaluation_changes_nothing_else(
    method: str, begin: Begin
) -> None:
    plain = outcome(begin(trial_of(method), "plain"))
    trial = trial_of(method, eval_personal_epochs=2)
    first = begin(trial)
    run_rounds(first, 3)
    first.checkpoint()
    run = begin(trial, num_shards=2)
    params_sha256, history, _ = outcome(run)
    others = [line for line in history if "personal" not in line[2]]
    assert (params_sha256, others) == plain[:2]
    assert {number for number, _, name, _ in history if name == "accuracy/personal"} == {0, 2, 4, 6}
    clients = pd.read_parquet(run.folder / "clients.parquet")
    means = clients.groupby("round")["personal_accuracy"].mean()
    expected = {n: value for n, _, name, value in history if name == "accuracy/personal_mean"}
    assert means.to_dict() == pytest.approx(expected)


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
    told = run.take_incidents()
    assert [one.partition(";")[0] for one in told] == ["a shard died"] * len(deaths)
    assert run.take_incidents() == []
    assert (tmp_path / "trial" / "trial.log").read_text().splitlines() == told


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
    given = torch.linspace(-0.1, 0.1, 64 * 8 + 8 + 8 * 10 + 10)
    trial = trial_of(local={"lr": 1e-12}, init_digest="3f2a")
    check_fits(trial, population, given)
    run = TrialRun(trial, population, LocalShards(trial, population), tmp_path, given)
    run_rounds(run, 1)
    assert torch.allclose(run.server.params, given, atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "given", "says"),
    [
        ({"init_digest": "3f2a"}, None, "a trial that starts from a file is run with --init-model"),
        ({}, torch.zeros(3), "a trial that starts from a file is run with --init-model"),
        ({"init_digest": "3f2a"}, torch.zeros(3), r"params of shape \[3\], the model `mlp` needs"),
    ],
)
def test_a_start_that_does_not_fit_is_refused(
    population: Population, settings: dict[str, str], given: torch.Tensor | None, says: str
) -> None:
    with pytest.raises(UserError, match=says):
        check_fits(trial_of(**settings), population, given)


def test_a_population_that_nobody_can_be_tested_on_is_refused(population: Population) -> None:
    nothing = Examples(population.test.examples.x[:0], population.test.examples.y[:0])
    untested = population._replace(test=split_in_order(nothing, np.zeros(10, np.int64)))
    with pytest.raises(ConfigError, match="no client has an example to be tested on"):
        check_fits(trial_of(), untested)


def sentences(num_tokens: int) -> Population:
    """Clients with sequences whose last token, of those that have a class, is the label."""
    x = np.random.default_rng(0).integers(num_tokens, size=(200, 5)).astype(np.int16)
    side = split_in_order(Examples(x, x[:, -1].astype(np.int64) % 4), np.full(10, 20))
    return Population(side, side, 4)


def test_tokens_are_learned_whatever_the_number_of_shards(tmp_path: Path) -> None:
    model = {"name": "transformer", "width": 16, "heads": 2, "layers": 1, "vocabulary": 4}
    trial = trial_of(model=model, local={"lr": 0.3, "epochs": 4, "batch_size": 5})
    population = sentences(4)
    check_fits(trial, population)
    runs = [
        TrialRun(trial, population, LocalShards(trial, population, number), tmp_path / str(number))
        for number in (1, 3)
    ]
    for run in runs:
        run_rounds(run, 4)
    assert torch.equal(runs[0].server.params, runs[1].server.params)
    assert runs[0].rounds[-1].metrics["accuracy/test"] > 0.8


def test_tokens_that_a_model_does_not_know_are_refused() -> None:
    trial = trial_of(model={"name": "transformer", "width": 8, "vocabulary": 6})
    check_fits(trial, sentences(6))
    with pytest.raises(ConfigError, match="`transformer` does not know the token 6"):
        check_fits(trial, sentences(7))


def test_integers_are_numbers_to_models_that_have_no_tokens(tmp_path: Path) -> None:
    as_integers, trial = sentences(4), trial_of(model={"name": "mlp"})
    x, y, _ = as_integers.train.examples
    side = as_integers.train._replace(examples=Examples(x.astype(np.float32), y))
    params = []
    for population in (as_integers, Population(side, side, 4)):
        folder = tmp_path / str(population.feature_dtype)
        run = TrialRun(trial, population, LocalShards(trial, population), folder)
        run_rounds(run, 2)
        params.append(run.server.params)
    assert torch.equal(*params)


def test_one_process_at_a_time_holds_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "trial"
    refused = pytest.raises(FedcomeError, match=f"at work in {folder}: process {os.getpid()} on ")
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


STOP = {"stop": {"metric": "loss/client_max", "patience": 1}, "local": {"lr": 3.0}, "rounds": 40}


def test_a_trial_ends_where_its_rule_says(begin: Begin) -> None:
    """As one reads it from the history of the same trial without the rule."""
    plain = begin(trial_of(**{**STOP, "stop": None}), "plain")
    outcome(plain)
    history = [
        (one.number, one.metrics["loss/client_max"])
        for one in read_rounds(plain.folder)
        if "loss/client_max" in one.metrics
    ]
    end = next(
        number
        for place, (number, value) in enumerate(history)
        if place > 0 and value >= min(known for _, known in history[:place])
    )
    assert 0 < end < 40
    run = begin(trial_of(**STOP), "stopped")
    outcome(run)
    result, rounds = read_result(run.folder), read_rounds(run.folder)
    assert result is not None
    assert result.rounds == rounds[-1].number == end
    assert result.final["accuracy/tail"] == tail_accuracy(rounds)
    for own, same in zip(rounds[:-1], read_rounds(plain.folder), strict=False):
        assert own.metrics == same.metrics


def test_a_rule_to_stop_survives_an_interruption(begin: Begin) -> None:
    whole = outcome(begin(trial_of(**STOP), "whole"))
    first = begin(trial_of(**STOP), "torn")
    run_rounds(first, 1)
    first.checkpoint()
    assert outcome(begin(trial_of(**STOP), "torn")) == whole


def test_a_trial_pauses_where_its_launch_ends_and_goes_on_later(begin: Begin) -> None:
    whole = outcome(begin(folder="whole"))
    run = begin()
    run.advance(60, pause_after=3)
    run.advance(60, pause_after=3)
    assert (run.rounds_done, run.is_finished) == (3, False)
    run.checkpoint()
    assert outcome(begin()) == whole
