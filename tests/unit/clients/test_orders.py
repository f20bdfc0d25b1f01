"""Compiled orders of examples, against those of tensors."""

from ctypes import POINTER, c_uint64

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import cfunc, types

from fedcome_ray.clients import orders
from fedcome_ray.clients.batches import ClientExamples, course, plan
from fedcome_ray.numerics.randomness import Stream, client_keys, round_key


@given(
    sizes=st.lists(st.integers(1, 400), min_size=1, max_size=5),
    num_steps=st.integers(1, 7),
    batch_size=st.sampled_from([None, 1, 10, 50]),
    seed=st.integers(0, 2**32),
    round_index=st.integers(0, 1000),
)
@settings(max_examples=60, deadline=None)
def test_batches_are_the_same(  # type: ignore[no-untyped-def]
    sizes, num_steps, batch_size, seed, round_index
) -> None:
    offsets = np.cumsum([0, *sizes])
    order = torch.from_numpy(np.random.default_rng(seed).permutation(offsets[-1]))
    x, y = torch.zeros(len(order), 1), torch.zeros(len(order), dtype=torch.int64)
    examples = ClientExamples(x, y, order, offsets)
    clients = np.arange(len(sizes))
    block = examples.block(clients, np.full(len(sizes), num_steps))
    keys = client_keys(seed, Stream.BATCHES, round_index, block.ids)
    width = max(sizes) if batch_size is None else batch_size

    expected = plan(examples, block, width, batch_size, keys)
    found = course(examples, block, batch_size, round_key(seed, Stream.BATCHES, round_index))

    for client in clients:
        taken = [
            expected.rows[step, client, : expected.num_real[step, client]]
            for step in range(num_steps)
        ]
        start = found.starts[client]
        together = torch.cat(taken)
        assert torch.equal(found.rows[start : start + len(together)], together)


@cfunc(types.void(types.CPointer(types.uint64), types.int64, types.int64))
def sort(memory, most, size) -> None:  # type: ignore[no-untyped-def]
    orders._sort(memory, most, size)


def test_words_with_the_same_upper_half_are_sorted_by_the_lower() -> None:
    """Random ones hardly ever have."""
    rng, num = np.random.default_rng(0), 300
    words = rng.integers(0, 4, num).astype(np.uint64) << np.uint64(40)
    words |= rng.integers(0, 50, num).astype(np.uint64)
    memory = np.zeros(4 * num + orders.NUM_DIGITS, np.uint64)
    memory[:num], memory[num : 2 * num] = words, np.arange(num)
    sort.ctypes(memory.ctypes.data_as(POINTER(c_uint64)), num, num)
    assert np.array_equal(memory[num : 2 * num], np.argsort(words, kind="stable"))
