"""One trial: its identity, its cohorts, and the words with which mistakes are refused."""

import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import PositiveFloat, ValidationError

from fedcome_ray.errors import ConfigError
from fedcome_ray.experiments.trial import Trial, names_among, parse_trial
from fedcome_ray.hyperparameters import Hyperparameters

SETTINGS: dict[str, Any] = {
    "data": {"dataset": "digits", "num_clients": 20},
    "method": {"name": "fedprox", "mu": 0.1},
    "participation": 0.5,
    "seed": 3,
}


class TestKey:
    def test_the_order_of_settings_does_not_matter(self) -> None:
        other = {name: SETTINGS[name] for name in reversed(SETTINGS)}
        other["method"] = {"mu": 0.1, "name": "fedprox"}
        assert parse_trial(other).key == parse_trial(SETTINGS).key

    def test_a_default_that_is_written_out_does_not_matter(self) -> None:
        explicit = {**SETTINGS, "sampler": {"name": "random"}, "eval_every": 1}
        assert parse_trial(explicit).key == parse_trial(SETTINGS).key

    def test_an_int_and_the_equal_float_are_the_same_setting(self) -> None:
        one, other = (parse_trial({"local": {"lr": lr}}) for lr in (1, 1.0))
        assert one.key == other.key

    @pytest.mark.parametrize(
        "change",
        [{"seed": 4}, {"rounds": 7}, {"local": {"lr": 0.051}}, {"method": {"name": "fedavg"}}],
    )
    def test_every_setting_matters(self, change: dict[str, Any]) -> None:
        assert parse_trial({**SETTINGS, **change}).key != parse_trial(SETTINGS).key

    def test_what_came_later_does_not_matter_at_its_default(self) -> None:
        """Keys of results that are older than these settings."""
        assert Trial().key == "b0fa16b372d8"
        later = {"local": {"momentum": 0.0, "steps": None}, "availability": {"rate": 1}}
        assert parse_trial({**SETTINGS, **later}).key == parse_trial(SETTINGS).key == "42ef8afe848a"

    @pytest.mark.parametrize(
        "change",
        [
            {"local": {"momentum": 0.9}},
            {"local": {"steps": 5}},
            {"availability": {"rate": 0.9}},
            {"availability": {"straggler_rate": 0.9}},
        ],
    )
    def test_what_came_later_matters_otherwise(self, change: dict[str, Any]) -> None:
        assert parse_trial(change).key != Trial().key

    def test_another_process_finds_the_same_key(self) -> None:
        code = (
            "from fedcome_ray.experiments.trial import parse_trial;"
            f"print(parse_trial({SETTINGS!r}).key)"
        )
        answer = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert answer.stdout.strip() == parse_trial(SETTINGS).key

    def test_a_trial_that_travelled_as_json_is_the_same(self) -> None:
        trial = parse_trial({**SETTINGS, "seed": 2**63, "local": {"lr": 0.1 + 0.2}})
        assert Trial.model_validate_json(trial.model_dump_json()).key == trial.key

    def test_the_folder_name_is_safe_as_a_path(self) -> None:
        name = parse_trial(SETTINGS).folder_name
        assert name.startswith("fedprox_mu_")
        assert not set(name) & set("/\\ :*?[]")

    def test_the_folder_name_has_room_in_a_file_system(self, tmp_path: Path) -> None:
        data = {"dataset": f"npz:{'long' * 60}.npz"}
        trials = [parse_trial({**SETTINGS, "data": data, "seed": seed}) for seed in (0, 1)]
        for trial in trials:
            (tmp_path / trial.folder_name).mkdir()
        assert len({trial.folder_name for trial in trials}) == 2


class TestCohort:
    @pytest.mark.parametrize(
        ("settings", "num_clients", "size"),
        [
            ({}, 50, 50),
            ({"participation": 0.1}, 50, 5),
            ({"participation": 0.29}, 100, 29),  # 28.999999999999996 in floating point
            ({"participation": 0.001}, 50, 1),
            ({"participation": 1.0}, 7, 7),
            ({"cohort_size": 3}, 50, 3),
            ({"cohort_size": 50}, 50, 50),
            ({}, 1, 1),
        ],
    )
    def test_the_size_follows_from_the_population(
        self, settings: dict[str, Any], num_clients: int, size: int
    ) -> None:
        assert parse_trial(settings).cohort_size_of(num_clients) == size

    def test_a_cohort_above_the_population_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="at most the population of 20 clients, got 21"):
            parse_trial({"data": SETTINGS["data"], "cohort_size": 21})

    def test_a_share_and_a_size_together_are_refused(self) -> None:
        with pytest.raises(ConfigError, match=r"not both \(got 0.5 and 5\)"):
            parse_trial({"participation": 0.5, "cohort_size": 5})


class TestName:
    @pytest.mark.parametrize(
        ("settings", "tells"),
        [
            ({"local": {"lr": 0.1}}, "-lr=0.1"),
            ({"local": {"batch_size": "full", "epochs": 5}}, "-epochs=5-batch_size=null"),
            ({"model": {"name": "mlp", "hidden": [64, 32]}}, "-hidden=64x32"),
            ({"model": {"name": "logistic"}}, "-model=logistic"),
            ({"availability": {"rate": 0.9}}, "-availability.rate=0.9"),
            ({"rounds": 7, "eval_every": 7}, "-rounds=7-eval_every=7"),
            ({"data": {"dataset": "digits", "num_clients": 20}}, "-num_clients=20"),
            ({"data": {"dataset": "digits", "seed": 5}}, "-data.seed=5"),
            ({"data": {"dataset": "digits", "partition": {"name": "iid"}}}, "-partition=iid"),
            ({"init_digest": "0123456789abcdef" * 4}, "-init_digest=012345"),
        ],
    )
    def test_what_is_not_usual_is_told(self, settings: dict[str, Any], tells: str) -> None:
        assert parse_trial(settings).name == f"fedavg-digits-p1-random-s0{tells}"

    def test_the_folder_is_found_by_what_it_was_called_before(self) -> None:
        """Folders of finished trials must be found again, whatever names become."""
        trial = parse_trial({"local": {"lr": 0.1}, "rounds": 7})
        assert trial.folder_name == f"fedavg-digits-p1-random-s0-{trial.key}"

    def test_what_all_trials_of_a_launch_share_is_left_out(self) -> None:
        one, other = (
            parse_trial({"local": {"lr": 0.1, "epochs": epochs}, "rounds": 7}) for epochs in (1, 2)
        )
        assert names_among([one, other]) == {
            one.key: "fedavg-digits-p1-random-s0",
            other.key: "fedavg-digits-p1-random-s0-epochs=2",
        }
        assert names_among([]) == {}


class TestEvaluation:
    def test_the_initial_model_and_the_last_round_are_always_evaluated(self) -> None:
        trial = parse_trial({"rounds": 10, "eval_every": 4})
        assert [n for n in range(11) if trial.is_evaluated(n)] == [0, 4, 8, 10]

    def test_training_examples_are_evaluated_only_if_asked_for(self) -> None:
        assert not parse_trial({}).is_train_evaluated(0)
        trial = parse_trial({"eval_train_every": 2})
        assert [n for n in range(5) if trial.is_train_evaluated(n)] == [0, 2, 4]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"roundz": 5}, "roundz: there is no such setting; did you mean `rounds`?"),
        ({"local": {"lrr": 1}}, "local.lrr: there is no such setting; did you mean `lr`?"),
        ({"local": {"lr": 0}}, "local.lr: input should be greater than 0, got `0`"),
        ({"local": {"lr": float("inf")}}, "local.lr: input should be a finite number"),
        ({"local": {"lr": [0.1, 0.2]}}, "local.lr: input should be a valid number"),
        ({"local": 5}, "local: input should be settings with their names"),
        (
            {"local": {"epochs": 1, "steps": 5}},
            "local: give one of `epochs` and `steps`, and `null` for the other (got 1 and 5)",
        ),
        ({"local": {"epochs": None}}, "`null` for the other (got None and None)"),
        ({"local": {"momentum": 1}}, "local.momentum: input should be less than 1, got `1`"),
        ({"availability": {"rate": 0}}, "availability.rate: input should be greater than 0"),
        ({"availability": {"rte": 1}}, "did you mean `rate`?"),
        ({"seed": -1}, "seed: input should be greater than or equal to 0, got `-1`"),
        ({"participation": 1.5}, "participation: a share of the clients, above 0 and at most 1"),
        ({"participation": 20}, "got `20`; a number of clients is given as `cohort_size`"),
        ({"participation": 0}, "participation: input should be greater than 0, got `0`"),
        (
            {"method": {"name": "fedavg", "alpha": 3}},
            "method.alpha: fedavg has no such setting; allowed: server_lr (a number above 0)",
        ),
        (
            {"method": {"name": "fedfv", "mu": 3}},
            "alpha (a number at least 0 and at most 1), tau (a whole number at least 0), "
            "window (include_current or past_only)",
        ),
        (
            {"model": {"name": "mlp", "foo": 1}},
            "model.foo: mlp has no such setting; allowed: hidden (a list, each a whole number",
        ),
        ({"sampler": {"name": "random", "ema": 1}}, "random has no such setting; allowed: none"),
        ({"sampler": {"name": "chance"}}, "unknown sampler `chance`; allowed: clustered, divfl, "),
        ({"sampler": "random"}, "a sampler is given by its `name` and its settings; allowed: cl"),
        (
            {"data": {"dataset": "digits", "partition": {"name": "even"}}},
            "data.partition: unknown partition `even`; allowed: classes_per_client, dirichlet",
        ),
        (
            {"data": {"dataset": "digits", "clients": 3}},
            "digits has no such setting; did you mean `num_clients`? "
            "allowed: num_clients (a whole number above 0), partition, seed, test_split",
        ),
        ({"method": {"name": "fedavgg"}}, "did you mean `fedavg`?"),
        ({"method": "fedavg", "rounds": 0}, "rounds: input should be greater than 0, got `0`"),
        ({"rounds": True}, "`rounds` is no truth value, got `true`"),
        ({"local": {"lr": False}}, "local: `lr` is no truth value, got `false`"),
        ({"data": {"dataset": "digit"}}, "did you mean `digits`?"),
    ],
)
def test_a_mistake_is_named_by_field_value_and_what_is_allowed(
    settings: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError) as error:
        parse_trial(settings)
    assert says in str(error.value)


def test_a_truth_value_is_refused_only_where_a_number_is_wanted() -> None:
    class Settings(Hyperparameters):
        number: PositiveFloat | None = None
        clip: Literal["auto", True, False] = "auto"
        switch: bool | None = None
        anything: Any = None

    assert Settings(clip=True, switch=False, anything=True).clip is True
    with pytest.raises(ValidationError, match="`number` is no truth value"):
        Settings(number=True)


def test_all_mistakes_are_named_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        parse_trial({"rounds": 0, "seed": -1, "colour": "red"})
    assert len(str(error.value).splitlines()) == 3


def test_a_rule_to_stop_is_part_of_the_key_only_when_there_is_one() -> None:
    plain, stopped = parse_trial({}), parse_trial({"stop": {"patience": 5}})
    assert plain.key == parse_trial({"stop": None}).key
    assert len({plain.key, stopped.key, parse_trial({"stop": {"patience": 6}}).key}) == 3
    assert stopped.name.endswith("stop=accuracy/test:5")
    assert stopped.stops_by_test
    held_out = {"dataset": "digits", "validation": 0.1}
    assert not parse_trial({"stop": {"patience": 5}, "data": held_out}).stops_by_test
    assert not plain.stops_by_test


@pytest.mark.parametrize(
    ("stop", "says"),
    [
        (
            {"metric": "accuracy/tset"},
            "stop.metric: no such metric .* did you mean `accuracy/test`",
        ),
        ({"metric": "seconds/round"}, "stop.metric: no such metric of an evaluation; allowed"),
        ({"patience": 0}, "stop.patience: .*greater than 0, got `0`"),
        ({"patients": 3}, "stop.patients: there is no such setting; did you mean `patience`"),
    ],
)
def test_a_wrong_rule_to_stop_is_refused(stop: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_trial({"stop": stop})


@pytest.mark.parametrize(
    ("metric", "values", "is_reached"),
    [
        ("accuracy/test", [0.1], False),
        ("accuracy/test", [0.1, 0.3, 0.2], False),
        ("accuracy/test", [0.1, 0.3, 0.2, 0.25], True),
        ("accuracy/test", [0.1, 0.3, 0.2, 0.4], False),
        ("accuracy/test", [0.3, 0.3, 0.3], True),  # as good is not better
        ("loss/test", [3.0, 2.0, 1.0], False),
        ("loss/test", [1.0, 2.0, 3.0], True),
        ("loss/test", [1.0, float("nan"), float("nan")], True),
        ("accuracy/client_std", [0.3, 0.2, 0.1], False),
    ],
)
def test_patience_counts_evaluations_since_the_best(
    metric: str, values: list[float], is_reached: bool
) -> None:
    trial = parse_trial({"stop": {"metric": metric, "patience": 2}})
    assert trial.stop is not None
    assert trial.stop.is_reached(values) == is_reached
