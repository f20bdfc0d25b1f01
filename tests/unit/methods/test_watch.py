"""A user's method that fails: the error has a file, a line and a function."""

import pickle
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from fedcome_ray import methods
from fedcome_ray.errors import ConsensusError, PluginError
from fedcome_ray.methods import parts
from fedcome_ray.methods.method import AnyMethod, OnlyParams, Report
from fedcome_ray.methods.watch import CHECKS, watched

SOURCE = """\
from typing import Literal, NamedTuple

from fedcome_ray.errors import ConsensusError
from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.methods.method import Method, OnlyParams


class Own(Hyperparameters):
    name: Literal["own"] = "own"


class Kept(NamedTuple):
    memory: object


def helper(value):
    return value.nothing


def build(hp):
    def init_server(params, num_clients):
        return {init_server}

    def init_client(like):
        return {init_client}

    def broadcast(server):
        return {broadcast}

    def correct(grad, params, received, client):
        return {correct}

    def carry(received, client, report):
        return {carry}

    def aggregate(server, cohort, report):
        return {aggregate}

    return {build}
"""
GOOD = {
    "init_server": "OnlyParams(params)",
    "init_client": "Kept(like * 0)",
    "broadcast": "server",
    "correct": "grad",
    "carry": "Kept(report.update)",
    "aggregate": "server, {'drift': 1.0}",
    "build": "Method(init_server, init_client, broadcast, correct, carry, aggregate)",
}
CLIENTS, DIM = 3, 5
Load = Callable[..., AnyMethod]


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    def load(**changes: str) -> AnyMethod:
        path = tmp_path / "own.py"
        text = SOURCE
        for name, code in {**GOOD, **changes}.items():
            text = text.replace(f"{{{name}}}", code)
        path.write_text(text)
        methods.load_plugins([str(path)])
        return methods.build(methods.REGISTRY["own"].config())

    yield load
    methods.REGISTRY.pop("own", None)
    sys.modules.pop("fedcome_ray_plugin_own", None)


def line_of(code: str) -> int:
    return SOURCE.splitlines().index(code) + 1


def call(method: AnyMethod, name: str) -> Any:
    """A function of the method, on a small federation."""
    params, block = torch.zeros(DIM), torch.ones(CLIENTS, DIM)
    column = torch.ones(CLIENTS, 1)
    report = Report(block, column, column, column)
    kept = type(method.init_client(params))(block) if name in {"correct", "carry"} else None
    arguments: dict[str, tuple[Any, ...]] = {
        "init_server": (params, CLIENTS),
        "init_client": (params,),
        "broadcast": (OnlyParams(params),),
        "correct": (block, block, OnlyParams(params), kept),
        "carry": (OnlyParams(params), kept, report),
        "aggregate": (OnlyParams(params), (0, 1, 2), report),
    }
    return getattr(method, name)(*arguments[name])


def test_a_method_without_mistakes_is_not_disturbed(load: Load) -> None:
    method = load()
    for name in CHECKS:
        call(method, name)


@pytest.mark.parametrize("name", CHECKS)
def test_what_a_function_raises_is_one_line_with_its_place(load: Load, name: str) -> None:
    method = load(**{name: "1 / 0"})
    line = line_of(f"        return {{{name}}}")
    with pytest.raises(PluginError) as raised:
        call(method, name)
    assert str(raised.value) == f"own.py:{line}, in {name}: ZeroDivisionError: division by zero"
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_a_helper_of_the_same_file_is_the_place(load: Load) -> None:
    method = load(correct="helper(grad)")
    place = re.escape(f"own.py:{line_of('    return value.nothing')}, in helper: AttributeError")
    with pytest.raises(PluginError, match=place):
        call(method, "correct")


def test_an_error_inside_of_a_library_is_placed_where_the_file_called_it(load: Load) -> None:
    method = load(correct="grad @ grad")
    line = line_of("        return {correct}")
    with pytest.raises(PluginError, match=rf"own\.py:{line}, in correct: RuntimeError: .*shapes"):
        call(method, "correct")


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("init_server", "OnlyParams(params[1:])", "`params` of shape [4], expected [5]"),
        ("init_server", "params", "a `Tensor`, expected a named tuple with the tensor `params`"),
        ("init_client", "Kept(like[1:])", "`memory` of shape [4], expected [5]"),
        ("init_client", "[like]", "a `list`, expected a named tuple"),
        ("broadcast", "None", "nothing, expected a named tuple with the tensor `params`"),
        ("correct", "grad[:, 1:]", "a tensor of shape [3, 4], expected [3, 5]"),
        ("correct", "None", "nothing, expected a tensor of shape [3, 5]"),
        ("carry", "Kept(report.update.T)", "`memory` of shape [5, 3], expected [3, 5]"),
        ("carry", "report", "a `Report`, expected a `Kept`"),
        ("aggregate", "server", "a `OnlyParams`, expected the server's next state and a dict"),
        ("aggregate", "OnlyParams(report.update), {}", "of shape [3, 5], expected [5]"),
        ("aggregate", "server, {'x': report.loss}", "a `Tensor` as `x`, expected a number"),
    ],
)
def test_a_wrong_result_names_the_function_that_returned_it(
    load: Load, name: str, code: str, says: str
) -> None:
    method = load(**{name: code})
    with pytest.raises(PluginError, match=rf"own\.py:\d+, in {name}: returned ") as raised:
        call(method, name)
    assert says in str(raised.value)


def test_a_build_that_fails_or_returns_something_else_is_named(load: Load) -> None:
    with pytest.raises(PluginError, match=r"own\.py:\d+, in build: ZeroDivisionError"):
        load(build="1 / 0")
    del sys.modules["fedcome_ray_plugin_own"], methods.REGISTRY["own"]
    with pytest.raises(PluginError, match=r"in build: returned a `int`, expected a `Method`"):
        load(build="3")


def test_errors_of_this_package_keep_their_own_words(load: Load) -> None:
    method = load(aggregate="(_ for _ in ()).throw(ConsensusError('no solution'))")
    with pytest.raises(ConsensusError, match=r"^no solution$"):
        call(method, "aggregate")


def test_a_correction_that_only_broadcasts_is_allowed(load: Load) -> None:
    assert call(load(correct="received.params"), "correct").shape == (DIM,)


def test_parts_of_this_package_stay_what_they_are() -> None:
    """Training is faster where it sees that gradients are not corrected."""
    fedavg = methods.REGISTRY["fedavg"]
    assert watched(fedavg.build)(fedavg.config()).correct is parts.uncorrected


def test_the_error_can_be_sent_between_processes() -> None:
    error = PluginError("own.py:3, in correct: KeyError: 'a'")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
