"""Compiled local training, against autograd in float64 and against itself elsewhere."""

import platform
from collections.abc import Iterator
from itertools import islice, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from fedcome_ray.clients import batches, orders
from fedcome_ray.models import dense, dense_descent
from fedcome_ray.models.dense import Dense
from fedcome_ray.models.model import Course, Inputs, Rule, views
from fedcome_ray.numerics import double_sums, geometry, tiles
from tests.processes import answer_of

WIDTHS = st.lists(st.integers(1, 40), min_size=2, max_size=4).map(tuple)


def course_of(
    rng: np.random.Generator,
    widths: tuple[int, ...],
    sizes: list[int],
    num_steps: list[int],
    batch_size: int,
    in_bytes: bool = False,
    margins: int = 0,
) -> Course:
    """Clients of these sizes, with any examples in any order.

    A margin is a stretch of inputs that are the same in all examples: those of the first, or zero.
    """
    num_examples = 30
    inputs = Inputs(
        torch.from_numpy(rng.normal(size=(num_examples, widths[0])).astype(np.float32)), None
    )
    if in_bytes:
        x = torch.from_numpy(rng.integers(0, 256, inputs.x.shape, dtype=np.uint8))
        shift = torch.tensor([rng.choice([0.0, -1.7])]).float()
        inputs = Inputs(x, (torch.tensor([1 / 74]), shift))
    for _ in range(margins):
        first, last = np.sort(rng.integers(0, widths[0] + 1, 2))
        inputs.x[:, first:last] = inputs.x[0, first:last] * bool(rng.integers(2))
    y = torch.from_numpy(rng.integers(0, widths[-1], num_examples))
    lengths = [size * steps for size, steps in zip(sizes, num_steps, strict=True)]  # enough
    rows = torch.from_numpy(rng.integers(0, num_examples, sum(lengths)))
    starts = np.cumsum([0, *lengths])[:-1]
    return Course(inputs, y, rows, starts, np.array(sizes), np.array(num_steps), batch_size)


def batches_of(course: Course, client: int) -> Iterator[Tensor]:
    """The rows of each step."""
    rest = course.rows[course.starts[client] :]
    while True:
        epoch, rest = rest.split([course.sizes[client], len(rest) - course.sizes[client]])
        yield from epoch.split(course.batch_size)


def plain_updates(model: Dense, start: Tensor, course: Course, rule: Rule) -> Tensor:
    """The same step by step, by autograd in float64."""
    x, scale = course.inputs
    x = x.double()
    if scale is not None:
        x = x * scale[0].double() + scale[1].double()
    updates = []
    for client, num_steps in enumerate(course.num_steps.tolist()):
        begin = start[client].double()
        params = begin.clone()
        for rows in islice(batches_of(course, client), num_steps):
            leaf = params.clone().requires_grad_()
            hidden = x[rows]
            *below, last = pairwise(views(leaf, model.shapes))
            for weight, bias in below[::2]:
                hidden = functional.linear(hidden, weight, bias).relu()
            functional.cross_entropy(functional.linear(hidden, *last), course.y[rows]).backward()
            params = rule.keep * params + rule.scale * leaf.grad
            if rule.offset is not None:
                params -= rule.lr * rule.offset.expand_as(start)[client].double()
        updates.append(params - begin)
    return torch.stack(updates)


@given(
    widths=WIDTHS,
    clients=st.lists(st.tuples(st.integers(1, 60), st.integers(0, 4)), min_size=1, max_size=3),
    batch_size=st.sampled_from([1, 2, 7, 13, 50, 10**9]),
    in_bytes=st.booleans(),
    margins=st.integers(0, 3),
    keep=st.sampled_from([1.0, 0.99]),
    own_starts=st.booleans(),
    offsets=st.sampled_from([None, "one", "each", "one number each"]),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=100, deadline=None)
def test_all_steps_are_those_of_autograd(  # type: ignore[no-untyped-def]
    widths, clients, batch_size, in_bytes, margins, keep, own_starts, offsets, seed
) -> None:
    rng = np.random.default_rng(seed)
    model, num_clients = Dense(widths), len(clients)
    sizes, num_steps = map(list, zip(*clients, strict=True))
    course = course_of(rng, widths, sizes, num_steps, batch_size, in_bytes, margins)

    def vectors(num: int, scale: float) -> Tensor:
        return torch.from_numpy(rng.normal(size=(num, model.dim)).astype(np.float32) * scale)

    start = vectors(num_clients if own_starts else 1, 0.3).expand(num_clients, -1)
    offset = None if offsets is None else vectors(1 if offsets == "one" else num_clients, 0.1)
    if offset is not None and offsets == "one number each":
        offset = offset[:, :1]
    rule = Rule(keep=keep, scale=-0.05, lr=0.05, offset=offset)

    update = torch.full((num_clients, model.dim), torch.nan)
    model.descend(update, start, course, rule)

    expected = plain_updates(model, start, course, rule)
    np.testing.assert_allclose(update, expected, rtol=2e-4, atol=2e-6)


def test_no_client_suffers_from_one_that_diverges() -> None:
    widths = (20, 9, 3)
    model = Dense(widths)
    course = course_of(np.random.default_rng(0), widths, [5, 5], [4, 4], batch_size=3)
    start = model.init(0).expand(2, -1).clone()
    start[0] = torch.nan
    rule = Rule(keep=1.0, scale=-0.1, lr=0.1, offset=None)
    together, alone = torch.empty(2, model.dim), torch.empty(1, model.dim)
    model.descend(together, start, course, rule)
    model.descend(alone, start[1:], course.of(slice(1, 2)), rule)
    assert together[0].isnan().all()
    assert torch.equal(together[1], alone[0])


@given(
    widths=WIDTHS,
    num=st.integers(1, 120),
    in_bytes=st.booleans(),
    margins=st.integers(0, 3),
    size=st.sampled_from((1e-3, 0.1, 1.0, 30.0)),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=50, deadline=None)
def test_scores_are_those_of_pytorch(  # type: ignore[no-untyped-def]
    widths, num, in_bytes, margins, size, seed
) -> None:
    rng = np.random.default_rng(seed)
    model = Dense(widths)
    inputs, y, *_ = course_of(rng, widths, [num], [1], 50, in_bytes, margins)
    rows = torch.from_numpy(rng.integers(0, len(inputs.x), num))
    params = torch.from_numpy(rng.normal(scale=size, size=model.dim).astype(np.float32))
    losses, hits = model.score(params, inputs, y, rows)
    x = inputs.x.double()
    if inputs.scale is not None:
        x = x * inputs.scale[0].double() + inputs.scale[1].double()
    logits = model.logits(params.double(), x[rows])
    expected = functional.cross_entropy(logits, y[rows], reduction="none")
    largest = logits.abs().max()
    np.testing.assert_allclose(losses, expected, rtol=1e-5, atol=1e-5 * max(1.0, largest))
    two_best = logits.topk(min(2, widths[-1])).values
    is_clear = two_best[:, 0] - two_best[:, -1] > 1e-4 * largest
    is_clear |= widths[-1] == 1
    assert torch.equal(hits[is_clear], (logits.argmax(-1) == y[rows])[is_clear])
    alone = model.score(params, inputs, y, rows[-1:])
    assert torch.equal(losses[-1:], alone[0]), "depends on company"
    assert torch.equal(hits[-1:], alone[1])


def test_scores_of_what_is_not_finite_are_no_numbers() -> None:
    model, inputs = Dense((3, 2)), Inputs(torch.ones(1, 3), None)
    for lost in (torch.nan, torch.inf):
        losses, _ = model.score(
            torch.full((model.dim,), lost), inputs, torch.tensor([1]), torch.tensor([0])
        )
        assert losses.isnan().all()


TRAINED = """
import hashlib, json, sys, warnings
warnings.simplefilter("ignore")
import numpy as np
from fedcome_ray.clients.rehearsal import first_message, random_population
from fedcome_ray.clients.shard import Shard
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.numerics.device import prepare_process
prepare_process()
settings = {"model": {"name": "mlp", "hidden": [33, 20]}, "method": {"name": "scaffold"}}
shard = Shard(Trial.model_validate(settings), random_population([1, 7, 50, 101], (1, 9, 9), 5))
update = shard.train(first_message(shard, 4), (0, 1, 2, 3), 0).update
found = hashlib.sha256(update.numpy().tobytes()).hexdigest()
print(json.dumps([found, "numba" in sys.modules]))
"""
OTHER_PROCESSORS = {
    "x86_64": {"haswell": "", "skylake-avx512": "-avx512f"},
    "aarch64": {"generic": "+neon"},
}


def test_every_processor_gives_the_same_bits() -> None:
    ours, _ = answer_of(TRAINED)
    others = OTHER_PROCESSORS.get(platform.machine(), {})
    if not others:
        pytest.skip(f"no other processor than {platform.machine()} is known here")
    for name, features in others.items():
        found = answer_of(TRAINED, NUMBA_CPU_NAME=name, NUMBA_CPU_FEATURES=features)
        assert found[0] == ours, name


def test_once_compiled_nobody_imports_the_compiler() -> None:
    answer_of(TRAINED)
    assert answer_of(TRAINED)[1] is False


def test_callers_and_compiled_code_agree_on_sizes() -> None:
    """Callers have them once more, so as not to import the compiler."""
    assert (dense.LANES, dense.TOGETHER) == (tiles.LANES, dense_descent.TOGETHER)
    assert batches._NUM_DIGITS == orders.NUM_DIGITS
    assert (geometry._WIDTH, geometry._STRETCH) == (double_sums.WIDTH, double_sums.STRETCH)
    assert geometry._SIDE % tiles.SIDE == 0
