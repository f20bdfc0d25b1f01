"""Random orders of clients' examples, written for Numba: see `batches.py`, which calls it.

The same numbers as `fedcome_ray.numerics.randomness` and a stable sort give, without the dozens of
small operations on tensors, which take longer than a small client's training.
"""

import numpy as np
from numba import njit

from fedcome_ray.numerics.tiles import Integers, Words, starting

GAMMA = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)
FOLD = np.uint64(0x632BE5AB)
SIGN = np.uint64(2**63)  # numbers are compared as signed ones
DIGIT = np.uint64(255)
NUM_DIGITS = 256


def shuffle(
    base: np.uint64,
    ids: Words,
    num_clients: int,
    sizes: Integers,
    starts: Integers,
    num_epochs: Integers,
    order: Integers,
    rows: Integers,
    memory: Words,
    most: int,
) -> None:
    """Of each client and epoch: its examples, places in `order` from its start on, shuffled.

    The memory has room for the examples of the largest client four times, and for a count of
    every digit.
    """
    for client in range(num_clients):
        key, size = _mix(_mix(ids[client] * GAMMA) + base), sizes[client]
        own = starting(order, starts[client])
        for epoch in range(num_epochs[client]):
            epoch_key = _mix(key ^ _mix(np.uint64(epoch + 1) * FOLD))
            for place in range(size):
                bits = _mix(epoch_key + np.uint64(place + 1) * GAMMA)
                memory[place] = bits ^ SIGN
                memory[most + place] = np.uint64(place)
            _sort(memory, most, size)
            for place in range(size):
                rows[place] = own[np.int64(memory[most + place])]
            rows = starting(rows, size)


@njit(error_model="numpy")
def _mix(word: np.uint64) -> np.uint64:
    word = (word ^ (word >> np.uint64(30))) * MIX_1
    word = (word ^ (word >> np.uint64(27))) * MIX_2
    return word ^ (word >> np.uint64(31))


@njit(error_model="numpy")
def _sort(memory: Words, most: int, size: int) -> None:
    """Sort words and, with them, what stands `most` places behind; equal ones keep their order."""
    words, others = memory, starting(memory, 2 * most)
    for digit in range(4, 8):  # by the upper half of the words, a digit at a time
        _sort_by_digit(words, others, starting(memory, 4 * most), most, size, np.uint64(8 * digit))
        words, others = others, words
    for last in range(1, size):  # hardly ever is that not enough
        word, follower, place = words[last], words[most + last], last
        while place > 0 and words[place - 1] > word:
            words[place], words[most + place] = words[place - 1], words[most + place - 1]
            place -= 1
        words[place], words[most + place] = word, follower


@njit(error_model="numpy")
def _sort_by_digit(
    words: Words, sorted_words: Words, counts: Words, most: int, size: int, shift: np.uint64
) -> None:
    for digit in range(NUM_DIGITS):
        counts[digit] = np.uint64(0)
    for place in range(size):
        counts[np.int64((words[place] >> shift) & DIGIT)] += np.uint64(1)
    first = np.uint64(0)
    for digit in range(NUM_DIGITS):
        count = counts[digit]
        counts[digit] = first
        first += count
    for place in range(size):
        own = np.int64((words[place] >> shift) & DIGIT)
        target = np.int64(counts[own])
        sorted_words[target], sorted_words[most + target] = words[place], words[most + place]
        counts[own] += np.uint64(1)
