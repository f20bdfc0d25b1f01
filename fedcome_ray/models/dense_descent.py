"""Local training of dense models, written for Numba: see `Dense.descend`, which calls it.

One client after the other takes all of its steps, so that its params and its batch stay in the
nearest caches, and what it computes cannot depend on its company.

A level is what lies between layers: the inputs, the hidden units, the scores. A row of a level has
one number more, which is always 1; its weights are the biases. The weights that lead to a level
are kept in panels of sixteen units, `[panel, below, unit]`, the last of them filled up with zeros.

Inputs that are the same in a whole batch, as images have them along their edges, are gaps: products
leave them out, and what they have in common is computed once for all examples.
"""

import numpy as np
from numba import njit

from fedcome_ray.numerics.tiles import (
    LANES,
    SQUARE,
    Bytes,
    Floats,
    Integers,
    Number,
    add_product,
    add_product_and,
    as_bits,
    from_bits,
    prefetch,
    scale_bytes,
    set_product,
    starting,
    transpose,
)

# Columns of the table of levels, see `Layout`.
UNITS, STRIDE, VALUES, ERRORS, WEIGHTS, TRANSPOSED, COMMON, NUM_COLUMNS = range(8)
LINE = 64  # bytes of a line of the cache
TOGETHER = 48  # examples that are scored at once
# Of a plain number, Numba would compile each product once more, which takes seconds.
NO_GAPS, ONE_ROW = np.int64(0), np.int64(1)
PART = 96  # units between whose products inputs are asked for: all at once would have to wait
LEAST_GAP = 4  # units; what is shorter is computed sooner than left out


def descend(
    levels: Integers,
    last_level: int,
    memory: Floats,
    differs: Bytes,
    bounds: Integers,
    num_weights: int,
    update: Floats,
    start: Floats,
    start_row: int,
    offset: Floats,
    offset_row: int,
    dim: int,
    num_clients: int,
    sizes: Integers,
    num_steps: Integers,
    rows: Integers,
    rows_starts: Integers,
    batch_size: int,
    pixels: Bytes,
    reals: Floats,
    are_bytes: int,
    factor: Floats,
    shift: Floats,
    labels: Integers,
    keep: Number,
    scale: Number,
    minus_lr: Number,
) -> None:
    """Train clients and write down their updates; `offset_row` is negative without offsets."""
    weights, origin = memory, starting(memory, num_weights)
    addend, has_addend = starting(origin, num_weights), offset_row >= 0
    num_inputs = _level(levels, 0)[UNITS] + 1
    for client in range(num_clients):
        if client == 0 or start_row > 0:
            _pack(levels, last_level, origin, starting(start, client * start_row), np.float32(1))
        if offset_row > 0 or (client == 0 and offset_row == 0):
            _pack(levels, last_level, addend, starting(offset, client * offset_row), minus_lr)
        for place in range(num_weights):
            weights[place] = origin[place]
        batch, rest = starting(rows, rows_starts[client]), sizes[client]  # of the epoch
        if num_steps[client] > 0:
            _announce(levels, batch, min(batch_size, rest), pixels, reals, are_bytes)
        for step in range(num_steps[client]):
            size = min(batch_size, rest)
            _fetch(levels, memory, batch, size, pixels, reals, are_bytes, factor, shift)
            num_gaps = _find_gaps(
                levels, memory, batch, size, pixels, reals, are_bytes, differs, bounds, False
            )
            _forwards(levels, last_level, memory, size, bounds, num_gaps)
            _set_errors(levels, last_level, memory, batch, size, labels)
            _backwards(levels, last_level, memory, addend, size, keep, scale, has_addend)
            _add_common_gradient(
                levels, memory, addend, size, bounds, num_gaps, keep, scale, has_addend
            )
            batch = starting(batch, size)
            rest = rest - size if rest > size else sizes[client]
            following = min(batch_size, rest) if step + 1 < num_steps[client] else 0
            num_announced = 0
            for stretch in range(num_gaps + 1):
                first, end = bounds[2 * stretch], bounds[2 * stretch + 1]
                while first < end:  # the largest product, and meanwhile the next inputs come
                    last = min(first + PART, end)
                    due = following * last // num_inputs - num_announced
                    coming = starting(batch, num_announced)
                    _announce(levels, coming, due, pixels, reals, are_bytes)
                    num_announced += due
                    _add_gradient(
                        levels, 1, memory, addend, first, last,
                        ERRORS, size, keep, scale, has_addend,
                    )  # fmt: skip
                    first = last
        for place in range(num_weights):
            weights[place] -= origin[place]
        _unpack(levels, last_level, starting(update, client * dim), weights)


def score(
    levels: Integers,
    last_level: int,
    memory: Floats,
    differs: Bytes,
    bounds: Integers,
    params: Floats,
    rows: Integers,
    num_rows: int,
    pixels: Bytes,
    reals: Floats,
    are_bytes: int,
    factor: Floats,
    shift: Floats,
    labels: Integers,
    losses: Floats,
    hits: Bytes,
) -> None:
    """Cross-entropy of examples, and if the largest score, the first of them, is that of the label.

    A few at a time, which leave out no inputs but zeros: so the company of an example does not
    change a bit of its loss, as long as weights are finite.
    """
    _pack(levels, last_level, memory, params, np.float32(1))
    level = _level(levels, last_level)
    _announce(levels, rows, min(TOGETHER, num_rows), pixels, reals, are_bytes)
    for first in range(0, num_rows, TOGETHER):
        size, batch = min(TOGETHER, num_rows - first), starting(rows, first)
        _fetch(levels, memory, batch, size, pixels, reals, are_bytes, factor, shift)
        following = min(TOGETHER, num_rows - first - size)
        num_gaps = _find_gaps(
            levels, memory, batch, size, pixels, reals, are_bytes, differs, bounds, True
        )
        _announce(levels, starting(batch, size), following, pixels, reals, are_bytes)
        _forwards(levels, last_level, memory, size, bounds, num_gaps)
        for example in range(size):
            scores = starting(memory, level[VALUES] + example * level[STRIDE])
            label, best = labels[batch[example]], 0
            for unit in range(1, level[UNITS]):
                best = unit if scores[unit] > scores[best] else best
            total = np.float32(0)
            for unit in range(level[UNITS]):
                total += _exponential(scores[unit] - scores[best])
            losses[first + example] = _logarithm(total) - (scores[label] - scores[best])
            hits[first + example] = best == label


@njit(error_model="numpy")
def _level(levels: Integers, number: int) -> Integers:
    return starting(levels, number * NUM_COLUMNS)


@njit(error_model="numpy")
def _pack(
    levels: Integers, last_level: int, packed: Floats, params: Floats, factor: Number
) -> None:
    """Params times a factor, in panels."""
    for number in range(1, last_level + 1):
        below, units = _level(levels, number - 1)[UNITS], _level(levels, number)[UNITS]
        panels = starting(packed, _level(levels, number)[WEIGHTS])
        biases = starting(params, below * units)
        for first_unit in range(0, units, LANES):
            num_units = min(LANES, units - first_unit)
            in_squares = _in_squares(below, num_units)
            rows = starting(params, first_unit * below)
            for lane in range(0, LANES, SQUARE):
                for first in range(0, in_squares, SQUARE):
                    square = starting(rows, lane * below + first)
                    transpose(starting(panels, first * LANES + lane), LANES, square, below, factor)
            for place in range(in_squares, below):
                for unit in range(num_units):
                    panels[place * LANES + unit] = rows[unit * below + place] * factor
            for unit in range(num_units):
                panels[below * LANES + unit] = biases[first_unit + unit] * factor
            panels = starting(panels, (below + 1) * LANES)
        params = starting(biases, units)


@njit(error_model="numpy")
def _unpack(levels: Integers, last_level: int, params: Floats, packed: Floats) -> None:
    """Params from panels."""
    one = np.float32(1)
    for number in range(1, last_level + 1):
        below, units = _level(levels, number - 1)[UNITS], _level(levels, number)[UNITS]
        panels = starting(packed, _level(levels, number)[WEIGHTS])
        biases = starting(params, below * units)
        for first_unit in range(0, units, LANES):
            num_units = min(LANES, units - first_unit)
            in_squares = _in_squares(below, num_units)
            rows = starting(params, first_unit * below)
            for lane in range(0, LANES, SQUARE):
                for first in range(0, in_squares, SQUARE):
                    square = starting(panels, first * LANES + lane)
                    transpose(starting(rows, lane * below + first), below, square, LANES, one)
            for place in range(in_squares, below):
                for unit in range(num_units):
                    rows[unit * below + place] = panels[place * LANES + unit]
            for unit in range(num_units):
                biases[first_unit + unit] = panels[below * LANES + unit]
            panels = starting(panels, (below + 1) * LANES)
        params = starting(biases, units)


@njit(error_model="numpy")
def _in_squares(below: int, num_units: int) -> int:
    """How many of the units below are in whole squares with so many units of a panel."""
    return below // SQUARE * SQUARE if num_units == LANES else 0


@njit(error_model="numpy")
def _announce(
    levels: Integers, batch: Integers, size: int, pixels: Bytes, reals: Floats, are_bytes: int
) -> None:
    """Have the inputs of a batch, which lie anywhere in memory, brought near."""
    units = _level(levels, 0)[UNITS]
    for example in range(size):
        first = batch[example] * units
        if are_bytes:
            for place in range(0, units, LINE):
                prefetch(pixels, first + place)
        else:
            for place in range(0, units, LINE // 4):
                prefetch(reals, first + place)


@njit(error_model="numpy")
def _fetch(
    levels: Integers,
    memory: Floats,
    batch: Integers,
    size: int,
    pixels: Bytes,
    reals: Floats,
    are_bytes: int,
    factor: Floats,
    shift: Floats,
) -> None:
    """The inputs of a batch."""
    level = _level(levels, 0)
    units = level[UNITS]
    for example in range(size):
        values = starting(memory, level[VALUES] + example * level[STRIDE])
        first = batch[example] * units
        if are_bytes:
            own_pixels, whole = starting(pixels, first), units // LANES * LANES
            for unit in range(0, whole, LANES):
                scale_bytes(
                    starting(values, unit), starting(own_pixels, unit),
                    starting(factor, unit), starting(shift, unit),
                )  # fmt: skip
            for unit in range(whole, units):
                values[unit] = np.float32(own_pixels[unit]) * factor[unit] + shift[unit]
        else:
            own_reals = starting(reals, first)
            for unit in range(units):
                values[unit] = own_reals[unit]
        values[units] = np.float32(1)


@njit(error_model="numpy")
def _find_gaps(
    levels: Integers,
    memory: Floats,
    batch: Integers,
    size: int,
    pixels: Bytes,
    reals: Floats,
    are_bytes: int,
    differs: Bytes,
    bounds: Integers,
    only_zeros: bool,
) -> int:
    """How many gaps the inputs of a batch have.

    Bounds are where the first stretch of other inputs begins and ends, which is where the first gap
    begins, and so on. The 1 behind the inputs, whose weights are the biases, is in no gap.
    """
    units = _level(levels, 0)[UNITS]
    values = starting(memory, _level(levels, 0)[VALUES])  # of the first example
    for unit in range(units):
        differs[unit] = only_zeros and values[unit] != 0
    own = batch[0] * units
    for example in range(1, size):
        other = batch[example] * units
        if are_bytes:
            own_pixels, other_pixels = starting(pixels, own), starting(pixels, other)
            for unit in range(units):
                differs[unit] |= own_pixels[unit] ^ other_pixels[unit]
        else:
            own_reals, other_reals = starting(reals, own), starting(reals, other)
            for unit in range(units):
                differs[unit] |= own_reals[unit] != other_reals[unit]
    num_gaps = end = bounds[0] = 0
    for unit in range(units + 1):
        if unit == units or differs[unit]:
            if unit - end >= LEAST_GAP:
                bounds[2 * num_gaps + 1], bounds[2 * num_gaps + 2] = end, unit
                num_gaps += 1
            end = unit + 1
    bounds[2 * num_gaps + 1] = end
    return num_gaps


@njit(error_model="numpy")
def _forwards(
    levels: Integers, last_level: int, memory: Floats, size: int, bounds: Integers, num_gaps: int
) -> None:
    for number in range(1, last_level + 1):
        below, level = _level(levels, number - 1), _level(levels, number)
        depth = below[UNITS] + 1
        set_product(
            size, -(-level[UNITS] // LANES),
            starting(memory, level[VALUES]), level[STRIDE], LANES,
            memory, np.float32(0), np.float32(1),
            starting(memory, below[VALUES]), below[STRIDE], 1,
            starting(memory, level[WEIGHTS]), LANES, depth * LANES, depth,
            starting(bounds, 1), num_gaps if number == 1 else 0,
        )  # fmt: skip
        if number == 1 and not _are_zeros(levels, memory, bounds, num_gaps):
            _add_common_values(levels, memory, size, bounds, num_gaps)
        if number < last_level:
            for example in range(size):
                values = starting(memory, level[VALUES] + example * level[STRIDE])
                for unit in range(level[UNITS]):
                    value = values[unit]
                    values[unit] = np.float32(0) if value < 0 else value
                values[level[UNITS]] = np.float32(1)


@njit(error_model="numpy")
def _are_zeros(levels: Integers, memory: Floats, bounds: Integers, num_gaps: int) -> bool:
    """Whether the inputs in all gaps are."""
    values = starting(memory, _level(levels, 0)[VALUES])
    for gap in range(num_gaps):
        for unit in range(bounds[2 * gap + 1], bounds[2 * gap + 2]):
            if values[unit] != 0:
                return False
    return True


@njit(error_model="numpy")
def _add_common_values(
    levels: Integers, memory: Floats, size: int, bounds: Integers, num_gaps: int
) -> None:
    """What the inputs in gaps give the first hidden units."""
    below, level = _level(levels, 0), _level(levels, 1)
    depth, common = below[UNITS] + 1, starting(memory, level[COMMON])
    set_product(
        ONE_ROW, -(-level[UNITS] // LANES), common, level[STRIDE], LANES,
        memory, np.float32(0), np.float32(1),
        starting(memory, below[VALUES]), below[STRIDE], 1,
        starting(memory, level[WEIGHTS]), LANES, depth * LANES, depth,
        bounds, num_gaps + 1,
    )  # fmt: skip
    for example in range(size):
        values = starting(memory, level[VALUES] + example * level[STRIDE])
        for unit in range(level[UNITS]):
            values[unit] += common[unit]


@njit(error_model="numpy")
def _add_common_gradient(
    levels: Integers,
    memory: Floats,
    addend: Floats,
    size: int,
    bounds: Integers,
    num_gaps: int,
    keep: Number,
    scale: Number,
    has_addend: bool,
) -> None:
    """To the weights of inputs in gaps: the sum of all errors, times the input."""
    if keep == 1 and not has_addend and _are_zeros(levels, memory, bounds, num_gaps):
        return
    level = _level(levels, 1)
    common = starting(memory, level[COMMON])
    for unit in range(-(-level[UNITS] // LANES) * LANES):
        common[unit] = np.float32(0)
    for example in range(size):
        errors = starting(memory, level[ERRORS] + example * level[STRIDE])
        for unit in range(level[UNITS]):
            common[unit] += errors[unit]
    for gap in range(num_gaps):
        first, last = bounds[2 * gap + 1], bounds[2 * gap + 2]
        _add_gradient(
            levels, 1, memory, addend, first, last, COMMON, ONE_ROW, keep, scale, has_addend
        )


@njit(error_model="numpy")
def _set_errors(
    levels: Integers, last_level: int, memory: Floats, batch: Integers, size: int, labels: Integers
) -> None:
    """The gradient of the mean cross-entropy with respect to the scores."""
    level = _level(levels, last_level)
    units, share = level[UNITS], np.float32(1) / np.float32(size)
    for example in range(size):
        scores = starting(memory, level[VALUES] + example * level[STRIDE])
        errors = starting(memory, level[ERRORS] + example * level[STRIDE])
        largest = scores[0]
        for unit in range(1, units):
            score = scores[unit]
            largest = score if score > largest else largest
        for unit in range(units):
            errors[unit] = _exponential(scores[unit] - largest)
        total = np.float32(0)
        for unit in range(units):
            total += errors[unit]
        for unit in range(units):
            errors[unit] *= share / total
        errors[labels[batch[example]]] -= share


@njit(error_model="numpy")
def _exponential(number: Number) -> Number:
    """Of a number that is not positive, to about a unit in the last place.

    By hand, because every system's library rounds differently: 2^k e^r, with r at most ln(2)/2 away
    from zero, and the polynomial of the Cephes library for e^r. Not a number stays what it is.
    """
    number = np.float32(-87) if number < np.float32(-87) else number
    shifted = number * np.float32(1.44269504088896341) + np.float32(12582912)  # 1.5 * 2^23
    whole = shifted - np.float32(12582912)  # rounded, as the last bits of `shifted` are
    rest = number - whole * np.float32(0.693359375)
    rest = rest - whole * np.float32(-2.12194440e-4)
    sum_ = np.float32(1.9875691500e-4)
    sum_ = sum_ * rest + np.float32(1.3981999507e-3)
    sum_ = sum_ * rest + np.float32(8.3334519073e-3)
    sum_ = sum_ * rest + np.float32(4.1665795894e-2)
    sum_ = sum_ * rest + np.float32(1.6666665459e-1)
    sum_ = sum_ * rest + np.float32(5.0000001201e-1)
    power = from_bits(np.int32((as_bits(shifted) + np.int32(127)) << np.int32(23)))
    return (sum_ * rest * rest + rest + np.float32(1)) * power


@njit(error_model="numpy")
def _logarithm(number: Number) -> Number:
    """Of a number that is at least 1, to about a unit in the last place, by Cephes's polynomial.

    k ln(2) + ln(1 + r), with 1 + r between the roots of a half and of two.
    """
    bits = as_bits(number)
    power = np.int32((bits >> np.int32(23)) - np.int32(127))
    share = from_bits(np.int32((bits & np.int32(0x7FFFFF)) | np.int32(0x3F800000)))  # from 1 to 2
    if share > np.float32(1.41421356):
        share *= np.float32(0.5)
        power += np.int32(1)
    rest, whole = share - np.float32(1), np.float32(power)
    square = rest * rest
    sum_ = np.float32(7.0376836292e-2)
    sum_ = sum_ * rest - np.float32(1.1514610310e-1)
    sum_ = sum_ * rest + np.float32(1.1676998740e-1)
    sum_ = sum_ * rest - np.float32(1.2420140846e-1)
    sum_ = sum_ * rest + np.float32(1.4249322787e-1)
    sum_ = sum_ * rest - np.float32(1.6668057665e-1)
    sum_ = sum_ * rest + np.float32(2.0000714765e-1)
    sum_ = sum_ * rest - np.float32(2.4999993993e-1)
    sum_ = sum_ * rest + np.float32(3.3333331174e-1)
    sum_ = sum_ * rest * square - whole * np.float32(2.12194440e-4) - np.float32(0.5) * square
    found = rest + sum_ + whole * np.float32(0.693359375)
    return found if number < np.float32(np.inf) else number  # nor is it a number


@njit(error_model="numpy")
def _backwards(
    levels: Integers,
    last_level: int,
    memory: Floats,
    addend: Floats,
    size: int,
    keep: Number,
    scale: Number,
    has_addend: bool,
) -> None:
    """Add the gradient to the weights, from the scores down to all but those of the inputs."""
    for number in range(last_level, 1, -1):
        below, level = _level(levels, number - 1), _level(levels, number)
        _transpose(memory, below, level)  # before the weights change
        _pass_errors(levels, memory, number, size)
        rows = below[UNITS] + 1
        _add_gradient(
            levels, number, memory, addend, 0, rows, ERRORS, size, keep, scale, has_addend
        )


@njit(error_model="numpy")
def _add_gradient(
    levels: Integers,
    number: int,
    memory: Floats,
    addend: Floats,
    first: int,
    last: int,
    column: int,
    size: int | np.int64,
    keep: Number,
    scale: Number,
    has_addend: bool,
) -> None:
    """To the weights that lead from some units, one of which is always 1, to a level.

    So many errors are in the memory that the column says.
    """
    below, level = _level(levels, number - 1), _level(levels, number)
    panel, place = (below[UNITS] + 1) * LANES, level[WEIGHTS] + first * LANES
    weights, panels = starting(memory, place), -(-level[UNITS] // LANES)
    values, errors = starting(memory, below[VALUES] + first), starting(memory, level[column])
    if has_addend:
        add_product_and(
            last - first, panels, weights, LANES, panel, starting(addend, place),
            keep, scale, values, 1, below[STRIDE], errors, level[STRIDE], LANES, size,
            levels, NO_GAPS,
        )  # fmt: skip
    else:
        add_product(
            last - first, panels, weights, LANES, panel, memory,
            keep, scale, values, 1, below[STRIDE], errors, level[STRIDE], LANES, size,
            levels, NO_GAPS,
        )  # fmt: skip


@njit(error_model="numpy")
def _transpose(memory: Floats, below: Integers, level: Integers) -> None:
    """Weights in panels of the units below: `[panel, unit, below]`."""
    units, rows, one = level[UNITS], below[UNITS] + 1, np.float32(1)
    weights, transposed = starting(memory, level[WEIGHTS]), starting(memory, level[TRANSPOSED])
    for first_unit in range(0, units, LANES):
        panel = starting(weights, first_unit * rows)
        num_units = min(LANES, units - first_unit)
        in_squares = _in_squares(below[UNITS], num_units)
        for lane in range(0, LANES, SQUARE):
            for first in range(0, in_squares, SQUARE):
                place = (first // LANES * units + first_unit + lane) * LANES + first % LANES
                square = starting(panel, first * LANES + lane)
                transpose(starting(transposed, place), LANES, square, LANES, one)
        for unit in range(num_units):
            for place in range(in_squares, below[UNITS]):
                row = starting(transposed, (place // LANES * units + first_unit + unit) * LANES)
                row[place % LANES] = panel[place * LANES + unit]


@njit(error_model="numpy")
def _pass_errors(levels: Integers, memory: Floats, number: int, size: int) -> None:
    """The gradient with respect to what the units below give, through their ReLU."""
    below, level = _level(levels, number - 1), _level(levels, number)
    units = level[UNITS]
    set_product(
        size, -(-below[UNITS] // LANES),
        starting(memory, below[ERRORS]), below[STRIDE], LANES,
        memory, np.float32(0), np.float32(1),
        starting(memory, level[ERRORS]), level[STRIDE], 1,
        starting(memory, level[TRANSPOSED]), LANES, units * LANES, units, levels, NO_GAPS,
    )  # fmt: skip
    for example in range(size):
        values = starting(memory, below[VALUES] + example * below[STRIDE])
        errors = starting(memory, below[ERRORS] + example * below[STRIDE])
        for unit in range(below[UNITS]):
            error = errors[unit]
            errors[unit] = error if values[unit] > 0 else np.float32(0)
