"""A user's method that fails: the error has a file, a line and a function."""

import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fedcome_ray import methods
from fedcome_ray.errors import ConsensusError, PluginError, UserError
from fedcome_ray.methods import parts
from fedcome_ray.methods.method import AnyMethod, OnlyParams, Report
from fedcome_ray.plugins import load_plugins
from fedcome_ray.plugins.method import CHECKS, rehearse, watched
from fedcome_ray.plugins.watch import watch

SOURCE = """\
import itertools
from typing import Literal, NamedTuple

from fedcome_ray.errors import ConsensusError
from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.methods.method import Affine, Method, OnlyParams, affine


class Own(Hyperparameters):
    name: Literal["own"] = "own"


class Kept(NamedTuple):
    memory: object


calls = itertools.count()


def helper(value):
    return value.nothing


def build({arguments}):
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

    def start(params, client):
        return {start}

    def terms(received, client):
        return {terms}

    return {build}
"""
GOOD = {
    "arguments": "hp",
    "init_server": "OnlyParams(params)",
    "init_client": "Kept(like * 0)",
    "broadcast": "server",
    "correct": "grad",
    "carry": "Kept(report.update)",
    "aggregate": "server, {'drift': 1.0}",
    "start": "params + client.memory",
    "terms": "Affine(client.memory)",
    "build": "Method(init_server, init_client, broadcast, correct, carry, aggregate, start=start)",
}
CLIENTS, DIM = 3, 5
Load = Callable[..., AnyMethod]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def load(**changes: str) -> AnyMethod:
        path = tmp_path / "own.py"
        text = SOURCE
        for name, code in {**GOOD, **changes}.items():
            text = text.replace(f"{{{name}}}", code)
        path.write_text(text)
        load_plugins([str(path)])
        return methods.build(methods.REGISTRY["own"].config())

    return load


def line_of(code: str) -> int:
    return SOURCE.splitlines().index(code) + 1


def call(method: AnyMethod, name: str) -> Any:
    """A function of the method, on a small federation."""
    params, block = torch.zeros(DIM), torch.ones(CLIENTS, DIM)
    column = torch.ones(CLIENTS, 1)
    report = Report(block, column, column, column)
    has_state = name in {"correct", "carry", "start"}
    kept = type(method.init_client(params))(block) if has_state else None
    arguments: dict[str, tuple[Any, ...]] = {
        "init_server": (params, CLIENTS),
        "init_client": (params,),
        "broadcast": (OnlyParams(params),),
        "correct": (block, block, OnlyParams(params), kept),
        "carry": (OnlyParams(params), kept, report),
        "aggregate": (OnlyParams(params), (0, 1, 2), report),
        "start": (params, kept),
    }
    return getattr(method, name)(*arguments[name])


def test_a_method_without_mistakes_is_not_disturbed(load: Load) -> None:
    method = load()
    for name in CHECKS:
        call(method, name)


@pytest.mark.parametrize("name", CHECKS)
def test_what_a_function_raises_is_one_line_with_its_place(load: Load, name: str) -> None:
    line = line_of(f"        return {{{name}}}")
    place = re.escape(f"own.py:{line}, in {name}: ZeroDivisionError: division by zero")
    with pytest.raises(UserError, match=f"{place}$"):
        load(**{name: "1 / 0"})


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("CUDA error: unknown error")],
)
def test_what_a_gpu_raises_is_left_to_those_who_can_handle_it(error: Exception) -> None:
    def correct(*_: object) -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        watch(correct, CHECKS["correct"])(*[torch.ones(DIM)] * 4)
    assert raised.value is error


def test_what_fails_only_in_a_round_has_its_place_too(load: Load) -> None:
    method = load(correct="grad / 1 if len(grad) != 2 else helper(grad)")
    place = re.escape(f"own.py:{line_of('    return value.nothing')}, in helper: AttributeError")
    two = torch.ones(2, DIM)
    with pytest.raises(PluginError, match=place) as raised:
        method.correct(two, two, OnlyParams(two[0]), method.init_client(two))
    assert isinstance(raised.value.__cause__, AttributeError)


AFFINE = "Method(init_server, init_client, broadcast, affine(terms), carry, aggregate)"


def test_an_affine_correction_is_known_as_one(load: Load) -> None:
    method = load(build=AFFINE)
    block, received = torch.ones(CLIENTS, DIM), OnlyParams(torch.zeros(DIM))
    kept = type(method.init_client(block))(2 * block)
    assert method.terms is not None
    assert torch.equal(method.terms(received, kept).offset, 2 * block)
    assert torch.equal(method.correct(block, block, received, kept), 3 * block)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("client.memory", "returned a `Tensor`, expected an `Affine`"),
        ("Affine(client.memory.cumsum(0))", "gave a client other numbers in a block than alone"),
        ("Affine(client.memory.add_(1))", "changed `client` in place"),
    ],
)
def test_mistakes_in_an_affine_correction_have_their_place(
    load: Load, code: str, says: str
) -> None:
    line = line_of("        return {terms}")
    definition = line_of("    def terms(received, client):")
    place = rf"own\.py:({line}|{definition}), in terms: "
    with pytest.raises(UserError, match=place + ".*" + re.escape(says)):
        load(build=AFFINE, terms=code)


def test_a_function_that_leaves_python_fails_like_others(load: Load) -> None:
    line = line_of("        return {aggregate}")
    with pytest.raises(UserError, match=rf"own\.py:{line}, in aggregate: SystemExit: 4$"):
        load(aggregate="exit(4)")


def test_an_error_inside_of_a_library_is_placed_where_the_file_called_it(load: Load) -> None:
    line = line_of("        return {correct}")
    with pytest.raises(UserError, match=rf"own\.py:{line}, in correct: RuntimeError: .*shapes"):
        load(correct="grad @ grad")


MANY = "[3, 7]"  # what a rehearsal has: three clients with vectors of seven numbers


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("init_server", "OnlyParams(params[1:])", "returned `params` of shape [6], expected [7]"),
        ("init_server", "params", "a `Tensor`, expected a named tuple with the tensor `params`"),
        ("init_client", "Kept(like[1:])", "returned `memory` of shape [6], expected [7]"),
        ("init_client", "[like]", "returned a `list`, expected a named tuple"),
        ("init_client", "Kept(like)", "depends on more than the shape of `like`"),
        ("broadcast", "None", "nothing, expected a named tuple with the tensor `params`"),
        ("correct", "grad[:, 1:]", f"returned a tensor of shape [3, 6], expected {MANY}"),
        ("correct", "None", f"returned nothing, expected a tensor of shape {MANY}"),
        ("correct", "grad.mean(0)", "gave a client other numbers in a block than alone"),
        ("correct", "grad - grad.mean(0)", "gave a client other numbers in a block than alone"),
        ("correct", "grad.mean(-1, keepdim=True)", "returned a tensor of shape [3, 1]"),
        ("correct", "grad.double()", "returned a tensor of float64, expected float32"),
        ("correct", "params.mul_(0.9)", "changed `params` in place"),
        ("correct", "received.params.add_(1) + grad", "changed `received` in place"),
        ("correct", "grad / 0", "returned numbers that are not finite"),
        ("correct", "grad * next(calls)", "something else when it was called with the same again"),
        ("carry", "Kept(report.update.T)", f"returned `memory` of shape [7, 3], expected {MANY}"),
        ("carry", "Kept(report.loss.new_tensor(1.0))", "returned `memory` of shape []"),
        ("carry", "Kept(report.update.cumsum(0))", "gave a client other numbers in a block"),
        ("carry", "report", "returned a `Report`, expected a `Kept`"),
        ("aggregate", "server", "a `OnlyParams`, expected the server's next state and a dict"),
        ("aggregate", "OnlyParams(report.update), {}", f"of shape {MANY}, expected [7]"),
        ("start", "client", f"a `Kept`, expected a tensor of shape {MANY}"),
        ("start", "params + client.memory.cumsum(0)", "gave a client other numbers in a block"),
        ("aggregate", "server, {'x': report.loss}", "a `Tensor` as `x`, expected a number"),
        ("aggregate", "OnlyParams(server.params.double()), {}", "`params` of float64"),
        ("aggregate", "OnlyParams(server.params * report.loss.sum()), {}", "`uses_loss=True`"),
        ("build", "3", "returned a `int`, expected a `Method`"),
        ("build", "None", "returned nothing, expected a `Method`"),
        ("build", "1 / 0", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_breach_of_the_contract_names_the_function(
    load: Load, name: str, code: str, says: str
) -> None:
    with pytest.raises(UserError, match=rf"own\.py:\d+, in {name}: ") as raised:
        load(**{name: code})
    assert says in str(raised.value)
    assert "own" not in methods.REGISTRY


def test_a_build_without_an_argument_is_named(load: Load) -> None:
    with pytest.raises(UserError, match=r"own\.py:\d+, in build: must take settings"):
        load(arguments="")


@pytest.mark.parametrize("name", methods.REGISTRY)
def test_our_own_methods_keep_to_the_contract(name: str) -> None:
    entry = methods.REGISTRY[name]
    rehearse(entry.build(entry.config()))


def test_errors_of_this_package_keep_their_own_words(load: Load) -> None:
    with pytest.raises(ConsensusError, match=r"^no solution$"):
        load(aggregate="(_ for _ in ()).throw(ConsensusError('no solution'))")


def test_a_correction_that_only_broadcasts_is_allowed(load: Load) -> None:
    assert call(load(correct="received.params"), "correct").shape == (DIM,)


def test_parts_of_this_package_stay_what_they_are() -> None:
    """Training is faster where it sees that gradients are not corrected."""
    fedavg = methods.REGISTRY["fedavg"]
    assert watched(fedavg.build)(fedavg.config()).correct is parts.uncorrected


def test_the_error_can_be_sent_between_processes() -> None:
    error = PluginError("own.py:3, in correct: KeyError: 'a'")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
