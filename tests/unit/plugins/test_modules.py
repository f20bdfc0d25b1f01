"""Users' files and installed entry points: imported once, or refused with a line."""

import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fedcome_ray import datasets, methods, models
from fedcome_ray.errors import UserError
from fedcome_ray.experiments.grid import Grid, expand
from fedcome_ray.experiments.trial import parse_trial
from fedcome_ray.federation.round import run_round
from fedcome_ray.federation.server import Server
from fedcome_ray.federation.shards import LocalShards
from fedcome_ray.plugins import load_plugins
from tests.unit.plugins.conftest import Write

ROOT = Path(__file__).parents[3]
TUTORIAL = (ROOT / "docs" / "adding_a_method.md").read_text(encoding="utf-8")
(EXAMPLE,) = re.findall(r"```python\n(.*?)```", TUTORIAL, flags=re.DOTALL)


def test_the_tutorials_method_learns(write: Write) -> None:
    load_plugins([write(EXAMPLE)])
    trial = parse_trial(
        {
            "method": {"name": "momentum", "beta": 0.2},
            "data": {"dataset": "digits", "num_clients": 10},
            "local": {"lr": 0.3, "epochs": 3},
        }
    )
    population = datasets.load(trial.data)
    params = models.build(trial.model, population.feature_shape, 10).init(seed=0)
    server, shards = Server(trial, params, 10), LocalShards(trial, population)
    records = [run_round(server, shards) for _ in range(10)]
    assert records[-1].metrics is not None
    assert records[-1].metrics["accuracy/test"] > 0.5


def test_the_tutorials_method_is_about_as_short_as_it_says() -> None:
    code = [
        line for line in EXAMPLE.splitlines() if line and not line.startswith(("from", "import"))
    ]
    assert len(code) <= 30


def test_a_loaded_method_can_be_an_axis_of_a_grid(write: Write) -> None:
    load_plugins([write(EXAMPLE)])
    grid = Grid(
        description="theirs and ours",
        axes={"method": [{"name": "momentum", "beta": 0.3}, {"name": "fedavg"}], "seed": [0, 1]},
        profiles={"quick": {}},
    )
    trials = expand(grid, "quick")
    assert [trial.name.split("-")[0] for trial in trials] == ["momentum(beta=0.3)"] * 2 + [
        "fedavg"
    ] * 2
    assert trials[0].model_dump()["method"] == {"name": "momentum", "beta": 0.3}
    assert len({trial.key for trial in trials}) == 4


def test_an_edited_plugin_makes_another_trial(write: Write) -> None:
    settings = {"method": {"name": "momentum"}}
    load_plugins([write(EXAMPLE)])
    before = parse_trial(settings).key
    assert parse_trial(settings).key == before
    del sys.modules["fedcome_ray_plugin_momentum"], methods.REGISTRY["momentum"]
    load_plugins([write(f"{EXAMPLE}\n# edited\n")])
    assert parse_trial(settings).key != before


def test_the_settings_of_a_loaded_method_are_validated(write: Write) -> None:
    load_plugins([write(EXAMPLE)])
    with pytest.raises(UserError, match=r"beta.*number"):
        parse_trial({"method": {"name": "momentum", "beta": "much"}})


def test_without_its_file_the_method_is_unknown() -> None:
    with pytest.raises(UserError, match=r"unknown method `momentum`; .*allowed: .*fedavg"):
        parse_trial({"method": {"name": "momentum"}})


def test_a_file_that_is_given_twice_is_loaded_once(write: Write) -> None:
    file = write(EXAMPLE)
    load_plugins([file])
    config = methods.REGISTRY["momentum"].config
    load_plugins([file, file])
    assert methods.REGISTRY["momentum"].config is config


def test_states_can_be_sent_between_processes_that_loaded_the_file(write: Write) -> None:
    file = write(EXAMPLE)
    send = (
        "import pickle, sys, torch; from fedcome_ray import methods;"
        "from fedcome_ray.plugins import load_plugins;"
        f"load_plugins([{file!r}]);"
        "method = methods.build(methods.REGISTRY['momentum'].config());"
        "sys.stdout.buffer.write(pickle.dumps(method.init_client(torch.ones(3))))"
    )
    sent = subprocess.run([sys.executable, "-c", send], cwd=ROOT, check=True, capture_output=True)
    load_plugins([file])
    state = pickle.loads(sent.stdout)
    assert type(state) is sys.modules["fedcome_ray_plugin_momentum"].ClientState
    assert state.memory.tolist() == [0, 0, 0]


NO_BUILD = EXAMPLE.replace("def build(", "def make(")
NO_CONFIG = EXAMPLE.replace("(Hyperparameters)", "")
NO_DEFAULT = EXAMPLE.replace(' = "momentum"', "")
TWO_CONFIGS = EXAMPLE + '\n\nclass Other(Hyperparameters):\n    name: Literal["b"] = "b"\n'


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (NO_BUILD, "must define `build`"),
        (NO_CONFIG, "must define a subclass of `Hyperparameters` whose field `name`"),
        (NO_DEFAULT, "whose field `name`.* has a default"),
        (TWO_CONFIGS, r"several classes of settings \(Momentum, Other\): .*`SMALL = ModelEntry"),
        ("", "has nothing to offer"),
        ("x = 1\n\ndef build(hp:\n", r"SyntaxError: .*momentum.py, line 3\)"),
        ("\nimport nowhere_to_be_found\n", r"ModuleNotFoundError: .*momentum.py, line 2\)"),
        ("x = 1\n1 / 0\n", r"ZeroDivisionError: division by zero \(.*momentum.py, line 2\)"),
        ("def f():\n  int('a')\nf()\n", r"ValueError: .*momentum.py, line 2\)"),
        ("import sys\nsys.exit(3)\n", r"SystemExit: 3 \(.*momentum.py, line 2\)"),
        ("class E(BaseException): pass\nraise E('no')\n", r"E: no \(.*momentum.py, line 2\)"),
        ("raise ValueError('a\\nb')\n", r"ValueError: a \(.*momentum.py, line 1\)"),
    ],
)
def test_a_file_that_is_no_method_is_told_what_is_missing(
    write: Write, text: str, complaint: str
) -> None:
    file = write(text)
    with pytest.raises(UserError, match=f"--plugin {re.escape(file)}: .*{complaint}"):
        load_plugins([file])
    assert "momentum" not in methods.REGISTRY


def test_a_file_that_failed_can_be_corrected_and_loaded(write: Write) -> None:
    with pytest.raises(UserError):
        load_plugins([write("1 / 0")])
    load_plugins([write(EXAMPLE)])
    assert "momentum" in methods.REGISTRY


def test_a_missing_file_is_named() -> None:
    with pytest.raises(UserError, match=r"--plugin no/such\.py: there is no such file"):
        load_plugins(["no/such.py"])


def test_a_file_that_is_not_python_is_refused(write: Write) -> None:
    with pytest.raises(UserError, match=r"not a Python file, its name must end in `\.py`"):
        load_plugins([write(EXAMPLE, "momentum.txt")])


def test_a_plugin_cannot_replace_one_of_our_methods(write: Write) -> None:
    text = EXAMPLE.replace('"momentum"', '"scaffold"')
    with pytest.raises(UserError, match="the method `scaffold` exists already"):
        load_plugins([write(text)])


def test_two_plugins_cannot_have_one_name(write: Write) -> None:
    first, second = write(EXAMPLE), write(EXAMPLE, "other.py")
    with pytest.raises(UserError, match="the method `momentum` exists already"):
        load_plugins([first, second])


def test_two_plugins_cannot_have_one_file_name(write: Write) -> None:
    first, second = write(EXAMPLE), write(EXAMPLE, "elsewhere/momentum.py")
    with pytest.raises(UserError, match="has the same name; rename one of them"):
        load_plugins([first, second])


@pytest.fixture
def install(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Install a package with one entry point, as pip would leave it behind."""

    def install(entry_point: str, text: str = EXAMPLE) -> None:
        write("", "outside_package/__init__.py")
        write(text, "outside_package/momentum.py")
        info = "outside_package-1.0.dist-info"
        write("Metadata-Version: 2.1\nName: outside-package\nVersion: 1.0\n", f"{info}/METADATA")
        write(f"[fedcome_ray.plugins]\n{entry_point}\n", f"{info}/entry_points.txt")
        monkeypatch.syspath_prepend(tmp_path)

    return install


def test_an_installed_package_brings_its_method(install: Write) -> None:
    install("momentum = outside_package.momentum")
    load_plugins([])
    load_plugins([])
    trial = parse_trial({"method": {"name": "momentum"}})
    assert methods.build(trial.method).init_client is not None


@pytest.mark.parametrize(
    ("entry_point", "complaint"),
    [
        ("m = outside_package.momentum:build", "must name a module"),
        ("m = outside_package.nothing", "ModuleNotFoundError"),
        ("m = outside_package", "must define a subclass of `Hyperparameters`"),
    ],
)
def test_a_package_whose_entry_point_is_wrong_is_named(
    install: Write, entry_point: str, complaint: str
) -> None:
    install(entry_point)
    with pytest.raises(UserError, match=f"entry point `{re.escape(entry_point)}`: .*{complaint}"):
        load_plugins([])


def test_a_package_with_a_syntax_error_is_told_where(install: Write) -> None:
    install("momentum = outside_package.momentum", text="x = (\n")
    with pytest.raises(UserError, match=r"SyntaxError: .*outside_package/momentum\.py, line 1\)"):
        load_plugins([])


def test_a_plugin_that_is_edited_while_python_runs_is_refused(write: Write) -> None:
    file = write(EXAMPLE)
    load_plugins([file])
    load_plugins([file])  # the same code again is no change
    before = parse_trial({"method": {"name": "momentum"}})
    write(f"{EXAMPLE}\n# edited\n")
    with pytest.raises(UserError, match="was edited since it was loaded; start Python anew"):
        load_plugins([file])
    assert parse_trial({"method": {"name": "momentum"}}).key == before.key
