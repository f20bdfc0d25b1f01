"""From a grid file to trials: what wins over what, and what is refused."""

import math
import os
from pathlib import Path
from typing import Any

import pytest

from fedcome_ray.errors import ConfigError, GridError
from fedcome_ray.experiments import grid
from fedcome_ray.experiments.grid import Grid, expand, load, sweep
from fedcome_ray.experiments.labels import label
from fedcome_ray.experiments.overlay import Overlay, Rule
from fedcome_ray.experiments.settings import assign, flatten, parse_axes, parse_overrides
from fedcome_ray.hyperparameters import name_of


def assigned(settings: dict[str, Any], *values: tuple[str, Any]) -> dict[str, Any]:
    assign(settings, values)
    return settings


def grid_of(**parts: Any) -> Grid:
    return Grid.model_validate({"description": "d", "profiles": {"quick": {}}, **parts})


class TestAssign:
    def test_a_dotted_name_makes_the_folders_on_its_way(self) -> None:
        assert assigned({}, ("a.b.c", 1)) == {"a": {"b": {"c": 1}}}

    def test_neighbours_stay(self) -> None:
        assert assigned({"a": {"b": 1}}, ("a.c", 2)) == {"a": {"b": 1, "c": 2}}

    def test_the_later_value_wins(self) -> None:
        assert assigned({}, ("a", 1), ("a", 2)) == {"a": 2}

    def test_another_name_drops_the_settings_of_the_old_one(self) -> None:
        settings = {"method": {"name": "fedprox", "mu": 0.1}}
        assert assigned(settings, ("method.name", "fedavg")) == {"method": {"name": "fedavg"}}

    def test_the_order_of_a_choice_and_its_settings_does_not_matter(self) -> None:
        values = [
            ("data.partition.classes", 3),
            ("method.mu", 0.1),
            ("data.partition.name", "classes_per_client"),
            ("method.name", "fedprox"),
            ("data.dataset", "digits"),
        ]
        expected = {
            "method": {"name": "fedprox", "mu": 0.1},
            "data": {
                "dataset": "digits",
                "partition": {"name": "classes_per_client", "classes": 3},
            },
        }
        assert assigned({}, *values) == assigned({}, *reversed(values)) == expected

    def test_a_choice_inside_something_given_as_a_whole_is_kept(self) -> None:
        values = [("data.partition.name", "iid"), ("data", {"dataset": "digits"})]
        expected = {"data": {"dataset": "digits", "partition": {"name": "iid"}}}
        assert assigned({}, *values) == assigned({}, *reversed(values)) == expected

    def test_what_yaml_makes_of_an_unquoted_name_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="`True` is not the name of a setting"):
            assign({}, [(True, 3)])  # type: ignore[list-item]

    def test_the_same_name_keeps_its_settings(self) -> None:
        settings = {"method": {"name": "fedprox", "mu": 0.1}}
        assert assigned(settings, ("method.name", "fedprox"))["method"]["mu"] == 0.1

    def test_another_dataset_drops_the_settings_of_the_old_one(self) -> None:
        settings = {"data": {"dataset": "cifar10", "num_clients": 100}}
        changed = assigned(settings, ("data.dataset", "digits"), ("data.num_clients", 5))
        assert changed == {"data": {"dataset": "digits", "num_clients": 5}}

    def test_a_value_is_copied_so_that_trials_do_not_share_it(self) -> None:
        method = {"name": "fedprox"}
        assigned({}, ("method", method), ("method.mu", 1.0))
        assert method == {"name": "fedprox"}

    def test_a_plain_value_has_no_settings_of_its_own(self) -> None:
        with pytest.raises(ConfigError, match="`rounds` has no settings of its own, it is `5`"):
            assigned({"rounds": 5}, ("rounds.max", 3))

    def test_a_case_is_several_settings_at_once(self) -> None:
        case = {"rounds": 3, "local.lr": 0.1}
        assert assigned({}, ("case", case)) == {"rounds": 3, "local": {"lr": 0.1}}

    def test_a_case_that_is_one_value_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="case: expected settings by name, got `3`"):
            assigned({}, ("case", 3))


class TestExpand:
    def test_trials_are_the_product_of_the_axes_in_their_order(self) -> None:
        trials = expand(grid_of(axes={"rounds": [1, 2], "seed": [0, 1]}), "quick")
        points = [(trial.rounds, trial.seed) for trial in trials]
        assert points == [(1, 0), (1, 1), (2, 0), (2, 1)]

    def test_a_profile_replaces_settings_and_axes(self) -> None:
        small = {"set": {"rounds": 3}, "axes": {"seed": [7]}}
        chosen = grid_of(base={"rounds": 9}, axes={"seed": [0, 1]}, profiles={"quick": small})
        (trial,) = expand(chosen, "quick")
        assert (trial.rounds, trial.seed) == (3, 7)

    def test_a_profile_can_add_an_axis(self) -> None:
        chosen = grid_of(profiles={"quick": {"axes": {"seed": [1, 2]}}})
        assert [trial.seed for trial in expand(chosen, "quick")] == [1, 2]

    def test_an_override_replaces_an_axis(self) -> None:
        trials = expand(grid_of(axes={"seed": [0, 1, 2]}), "quick", [("seed", 5)])
        assert [trial.seed for trial in trials] == [5]

    def test_an_override_wins_over_every_point(self) -> None:
        cases = [{"rounds": 1, "seed": 0}, {"rounds": 2, "seed": 1}]
        trials = expand(grid_of(axes={"case": cases}), "quick", [("rounds", 9)])
        assert [trial.rounds for trial in trials] == [9, 9]

    def test_a_choice_that_the_grid_has_selects_its_points(self) -> None:
        methods = [{"name": "fedavg"}, {"name": "fedprox", "mu": 0.3}, {"name": "feddyn"}]
        trials = expand(grid_of(axes={"method": methods}), "quick", [("method.name", "fedprox")])
        assert [trial.method.model_dump() for trial in trials] == [{"name": "fedprox", "mu": 0.3}]

    def test_a_choice_that_the_grid_has_not_is_made_everywhere(self) -> None:
        chosen = grid_of(axes={"method": [{"name": "fedavg"}], "seed": [0, 1]})
        trials = expand(chosen, "quick", [("method.name", "fedprox")])
        assert [trial.method.model_dump()["name"] for trial in trials] == ["fedprox"] * 2

    def test_a_model_is_no_selection(self) -> None:
        models = [{"name": "mlp"}, {"name": "logistic"}]
        chosen = grid_of(axes={"model": models, "seed": [0]})
        assert len(expand(chosen, "quick", [("model.name", "logistic")])) == 1
        cases = [{"seed": 0, "model": models[0]}, {"seed": 1, "model": models[1]}]
        trials = expand(grid_of(axes={"case": cases}), "quick", [("model.name", "mlp")])
        assert [trial.seed for trial in trials] == [0, 1]

    def test_a_grid_does_not_start_from_a_file(self) -> None:
        with pytest.raises(GridError, match="init_digest: give the file itself, as --init-model"):
            expand(grid_of(), "quick", [("init_digest", "abc")])

    def test_points_that_an_override_makes_equal_are_one_trial(self) -> None:
        axes = {"method": [{"name": "fedprox", "mu": 0.1}, {"name": "fedprox", "mu": 1.0}]}
        assert len(expand(grid_of(axes=axes), "quick", [("method.mu", 0.5)])) == 1

    def test_points_that_are_written_twice_are_one_trial(self) -> None:
        assert len(expand(grid_of(axes={"seed": [1, 1, 2]}), "quick")) == 2

    def test_the_trials_do_not_change_the_grid(self) -> None:
        chosen = grid_of(base={"local": {"lr": 0.1}}, axes={"local.lr": [0.2]})
        expand(chosen, "quick")
        assert chosen.base == {"local": {"lr": 0.1}}

    def test_an_axis_without_values_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"axes\.seed"):
            grid_of(axes={"seed": []})

    def test_a_bad_point_is_named_by_its_number(self) -> None:
        with pytest.raises(GridError, match=r"trial 2 of the grid:\nrounds: .*got `-1`"):
            expand(grid_of(axes={"rounds": [1, -1]}), "quick")

    def test_an_unknown_profile_is_named_with_the_nearest(self) -> None:
        with pytest.raises(GridError, match="no profile `quik`; did you mean `quick`"):
            expand(grid_of(), "quik")


class TestProfiles:
    def test_a_grid_without_profiles_is_run_as_it_is(self) -> None:
        plain = Grid.model_validate({"axes": {"seed": [3, 4]}})
        assert grid.profile_name(plain, None) == "none"
        assert [trial.seed for trial in expand(plain)] == [3, 4]
        assert expand(plain, "none") == expand(plain)

    def test_a_profile_of_a_grid_without_profiles_is_refused(self) -> None:
        with pytest.raises(GridError, match="the grid has no profiles, leave `paper` out"):
            expand(Grid(), "paper")

    def test_a_grid_with_profiles_is_run_as_quick_unless_told(self) -> None:
        sizes = {"quick": {"set": {"rounds": 2}}, "paper": {"set": {"rounds": 9}}}
        chosen = grid_of(profiles=sizes)
        assert [trial.rounds for trial in expand(chosen)] == [2]
        assert [trial.rounds for trial in expand(chosen, "paper")] == [9]

    def test_without_the_usual_profile_one_must_be_named(self) -> None:
        with pytest.raises(GridError, match="no profile `quick`; allowed: large, small"):
            expand(grid_of(profiles={"large": {}, "small": {}}))


class TestOrigins:
    def origins_of(self, chosen: Grid, *overrides: tuple[str, Any], **overlay: Any) -> Any:
        rules = Overlay([Rule(when={}, set=overlay)] if overlay else [])
        ((_, origins),) = grid.traced(chosen, None, overrides, rules)
        return origins

    def test_every_part_of_a_grid_leaves_its_name(self) -> None:
        chosen = grid_of(
            base={"rounds": 5, "local.lr": 0.1, "eval_every": 2},
            axes={"seed": [1], "method": [{"name": "fedprox"}]},
            profiles={"quick": {"set": {"local.lr": 0.2}}},
        )
        found = self.origins_of(chosen, ("eval_every", 1), **{"method.mu": 0.5})
        assert found["rounds"] == "base"
        assert found["local.lr"] == "profile quick"
        assert found["seed"] == found["method.name"] == "axes"
        assert found["eval_every"] == "--set"
        assert found["method.mu"] == "--overlay"
        assert found["local.epochs"] == "default"

    def test_a_default_that_is_asked_for_is_no_default(self) -> None:
        assert self.origins_of(grid_of(), ("rounds", 100))["rounds"] == "--set"

    def test_a_case_and_a_choice_leave_nothing_behind(self) -> None:
        chosen = grid_of(
            base={"method": {"name": "fedprox", "mu": 0.3}},
            axes={"case": [{"rounds": 3, "data.num_clients": 7}]},
        )
        found = self.origins_of(chosen, ("method.name", "fedavg"))
        assert found["rounds"] == found["data.num_clients"] == "axes"
        assert found["method.name"] == "--set"
        assert "method.mu" not in found


class TestLoad:
    def write(self, folder: Path, text: str) -> str:
        path = folder / "mine.yaml"
        path.write_text(text)
        return str(path)

    def test_a_file_of_the_users_own_is_a_grid_like_ours(self, tmp_path: Path) -> None:
        file = self.write(tmp_path, "description: d\nprofiles: {quick: {}}\naxes: {seed: [1, 2]}")
        assert len(expand(grid.load(file), "quick")) == 2

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("description: d\n\tprofiles: {}\n", "mine.yaml is not valid YAML"),
            ("", "mine.yaml is not a grid:\ngrid: "),
            ("[1, 2]", "mine.yaml is not a grid"),
            ("description: d\nprofiles: {quick: {}}\naxes: {seed: []}", "axes.seed: "),
            ("description: d\nprofiles: {quick: {}}\naxes: {seed: 1}", "axes.seed: "),
            ("description: d\nprofiles: {quick: {}}\naxes: {1: [1]}", "axes.1"),
            ("description: d\nprofiles: {quick: {axes: {seed: []}}}", "profiles.quick.axes.seed"),
            ("description: d\nprofile: {}", "no such setting; did you mean `profiles`?"),
        ],
    )
    def test_what_is_no_grid_is_told_why(self, tmp_path: Path, text: str, says: str) -> None:
        with pytest.raises(GridError) as error:
            grid.load(self.write(tmp_path, text))
        assert says in str(error.value)

    def test_bytes_that_are_no_text_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "mine.yaml").write_bytes(b"\xff\xfe\x00")
        with pytest.raises(GridError, match=r"mine\.yaml is not valid YAML"):
            grid.load(str(tmp_path / "mine.yaml"))


class TestOverrides:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("a=3", 3),
            ("a=0.5", 0.5),
            ("a=true", True),
            ("a=null", None),
            ("a=", None),
            ("a=digits", "digits"),
            ("a=[1, [2, 3]]", [1, [2, 3]]),
            ("a={name: fedprox, mu: 0.1}", {"name": "fedprox", "mu": 0.1}),
            ("a=npz:x=y.npz", "npz:x=y.npz"),
        ],
    )
    def test_values_have_the_type_that_they_look_like(self, text: str, value: object) -> None:
        assert parse_overrides([text]) == [("a", value)]

    def test_a_power_of_ten_needs_no_dot_although_yaml_wants_one(self) -> None:
        (trial,) = expand(grid_of(), "quick", parse_overrides(["local.lr=1e-3"]))
        assert trial.local.lr == 0.001

    def test_settings_of_a_default_need_not_name_it(self) -> None:
        (trial,) = expand(grid_of(), "quick", parse_overrides(["model.hidden=[7]"]))
        assert trial.model.model_dump()["hidden"] == (7,)

    def test_not_a_number_is_a_number_here_and_refused_by_the_trial(self) -> None:
        ((_, value),) = parse_overrides(["local.lr=.nan"])
        assert math.isnan(value)
        with pytest.raises(GridError, match=r"local\.lr: .*finite"):
            expand(grid_of(), "quick", [("local.lr", value)])

    @pytest.mark.parametrize("text", ["rounds", "=5", "rounds=[1", "rounds=\t- 1"])
    def test_what_is_no_setting_is_refused_with_its_text(self, text: str) -> None:
        with pytest.raises(ConfigError, match="--set"):
            parse_overrides([text])


def test_flat_names_are_those_that_assign_takes() -> None:
    settings = {"a": 1, "b": {"c": [2], "d": {"e": None}}}
    flat = flatten(settings)
    assert flat == {"a": 1, "b.c": [2], "b.d.e": None}
    assert assigned({}, *flat.items()) == settings


class TestSweep:
    def test_axes_need_no_grid(self) -> None:
        axes = {"seed": [0, 1], "method.name": ["fedavg", "scaffold"]}
        trials = grid.sweep(grid.DEFAULTS_ALONE, grid.NO_PROFILE, [("rounds", 3)], axes)
        assert [(t.seed, name_of(t.method), t.rounds) for t in trials] == [
            (0, "fedavg", 3),
            (0, "scaffold", 3),
            (1, "fedavg", 3),
            (1, "scaffold", 3),
        ]

    def test_an_axis_replaces_that_of_the_grid_or_adds_one(self) -> None:
        own = grid_of(axes={"seed": [0, 1], "rounds": [2, 3]})
        trials = grid.sweep(own, "quick", [], {"seed": [7], "local.lr": [0.1, 0.2]})
        assert [(t.seed, t.rounds, t.local.lr) for t in trials] == [
            (7, 2, 0.1),
            (7, 3, 0.1),
            (7, 2, 0.2),
            (7, 3, 0.2),
        ]

    def test_a_chosen_method_keeps_the_settings_that_the_grid_gives_it(self) -> None:
        compared = [{"name": "fedprox", "mu": 0.3}, {"name": "fedavg"}, {"name": "scaffold"}]
        own = grid_of(axes={"method": compared})
        trials = grid.sweep(own, "quick", [], {"method.name": ["fedprox", "fedyogi"]})
        assert [label(trial.method) for trial in trials] == ["fedprox(mu=0.3)", "fedyogi"]

    def test_without_axes_it_is_the_grid(self) -> None:
        own = grid_of(axes={"seed": [0, 1]})
        assert grid.sweep(own, "quick", [], {}) == grid.expand(own, "quick")


class TestAxesOfTheCommandLine:
    def test_values_are_read_as_yaml(self) -> None:
        texts = ["seed=0,1", "local.lr=0.1, 1e-3", "method.name=fedavg,'fedprox'", "a=null,true"]
        assert parse_axes(texts) == {
            "seed": [0, 1],
            "local.lr": [0.1, "1e-3"],  # as YAML has it; numbers are read from texts later
            "method.name": ["fedavg", "fedprox"],
            "a": [None, True],
        }

    def test_lists_and_settings_are_values_too(self) -> None:
        axes = parse_axes(["model.hidden=[64],[64,32]", "method={name: fedprox, mu: 1},{name: x}"])
        assert axes["model.hidden"] == [[64], [64, 32]]
        assert axes["method"] == [{"name": "fedprox", "mu": 1}, {"name": "x"}]

    @pytest.mark.parametrize(
        ("texts", "says"),
        [
            (["seed"], "--axis: expected `name=value,value,...`, got `seed`"),
            (["=1"], "--axis: expected `name=value,value,...`, got `=1`"),
            (["seed="], "--axis seed: expected values with commas between, got ``"),
            (["seed=,"], "--axis seed: expected values with commas between, got `,`"),
            (["seed=1,"], "--axis seed: expected values with commas between, got `1,`"),
            (["seed=1,,2"], "--axis seed: `1,,2` are not YAML values"),
            (["seed=[1"], "--axis seed: `[1` are not YAML values"),
            (["seed=1", "seed=2"], "--axis seed: given twice"),
            (["rounds=1"], "--axis rounds: also given as --set"),
        ],
    )
    def test_a_mistake_is_named(self, texts: list[str], says: str) -> None:
        with pytest.raises(ConfigError) as error:
            parse_axes(texts, [("rounds", 5)])
        assert says in str(error.value)


def test_a_record_that_is_unset_can_be_set_by_its_parts() -> None:
    (trial,) = grid.expand(grid.DEFAULTS_ALONE, None, [("stop.patience", 3)])
    assert trial.stop is not None
    assert (trial.stop.metric, trial.stop.patience) == ("accuracy/test", 3)


def test_a_product_of_astronomic_size_is_counted_and_not_made() -> None:
    axes = {f"local.setting{number}": list(range(1000)) for number in range(400)}
    with pytest.raises(GridError, match=r"axes: their product is about 10\^1200 trials"):
        expand(Grid(axes=axes))
    with pytest.raises(GridError, match=r"axes: their product is 1,000,000 trials"):
        sweep(Grid(axes={"seed": list(range(1000))}), None, [], {"rounds": list(range(1, 1001))})


def test_what_is_no_file_or_too_large_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.yaml")
    with pytest.raises(GridError, match="not a file"):
        load(str(tmp_path / "fifo.yaml"))
    with (tmp_path / "large.yaml").open("w") as file:
        file.truncate(10**10)
    with pytest.raises(GridError, match="has more than 2,000,000 bytes"):
        load(str(tmp_path / "large.yaml"))
    with pytest.raises(GridError, match="cannot read"):
        load(f"{'x' * 300}.yaml")
