"""What is computed in tiles is what NumPy says, and nothing beside it is written to."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedcome_ray.numerics.machine_code import BYTES, FLOAT, FLOATS, INTEGER, INTEGERS, Function
from fedcome_ray.numerics.tiles import LANES, SQUARE

ARGUMENTS = (
    *(INTEGER, INTEGER, FLOATS, INTEGER, INTEGER),  # what is computed
    *(FLOATS, FLOAT, FLOAT),
    *(FLOATS, INTEGER, INTEGER),  # left
    *(FLOATS, INTEGER, INTEGER, INTEGER),  # right
    *(INTEGERS, INTEGER),
)


def function(name: str, *arguments: Any) -> Function:
    used = ("fedcome_ray.numerics.tiles",)
    return Function("tests.unit.numerics.some_products", name, arguments, used)


PRODUCTS = {
    name: function(name, *ARGUMENTS) for name in ("add_product", "add_product_and", "set_product")
}
SCALE_BYTES = function("scale_bytes", FLOATS, BYTES, FLOATS, FLOATS)
TRANSPOSE = function("transpose", FLOATS, INTEGER, FLOATS, INTEGER, FLOAT)
UNTOUCHED = 7.0


@st.composite
def some_gaps(draw: st.DrawFn, depth: int) -> list[int]:
    """Where gaps begin and end, one behind the other."""
    ends = st.lists(st.integers(0, depth), max_size=6, unique=True)
    bounds = sorted(draw(ends))
    return bounds[: len(bounds) // 2 * 2]


class Places(NamedTuple):
    """How a matrix `[rows, panels, LANES]` lies in memory, its panels side by side or not."""

    memory: NDArray[np.float32]
    values: NDArray[np.float32]  # a view of it
    row: int  # from one to the next, in numbers
    panel: int

    @property
    def address(self) -> int:
        return self.values.ctypes.data


def placed(values: NDArray[np.float32], is_side_by_side: bool) -> Places:
    """With numbers before, between and behind that nobody should write to."""
    rows, panels, lanes = values.shape
    if is_side_by_side:
        memory = np.full((rows + 2, panels + 1, lanes), UNTOUCHED, np.float32)
        inner = memory[1:-1, :-1]
    else:
        memory = np.full((panels + 2, rows + 1, lanes), UNTOUCHED, np.float32)
        inner = memory[1:-1, :-1].swapaxes(0, 1)
    inner[:] = values
    row, panel, _ = (stride // 4 for stride in inner.strides)
    return Places(memory, inner, row, panel)


@pytest.mark.parametrize("name", PRODUCTS)
@settings(max_examples=60, deadline=None)
@given(data=st.data(), rows=st.integers(0, 45), panels=st.integers(0, 5), depth=st.integers(0, 20))
def test_a_product_is_that_of_numpy(
    name: str, data: st.DataObject, rows: int, panels: int, depth: int
) -> None:
    gaps = data.draw(some_gaps(depth))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))

    def some(*shape: int) -> NDArray[np.float32]:
        return rng.normal(size=shape).astype(np.float32)

    left = some(depth + 1, rows + 1).T if data.draw(st.booleans()) else some(rows + 1, depth + 1)
    right = placed(some(depth, panels, LANES), data.draw(st.booleans()))
    begun, added = some(rows, panels, LANES), some(rows, panels, LANES)
    is_side_by_side = data.draw(st.booleans())
    out, addend = placed(begun, is_side_by_side), placed(added, is_side_by_side)
    bounds = np.array([*gaps, 0, 0], np.int64)  # one pair beyond the last is read
    keep, scale = 0.75, -0.5
    PRODUCTS[name](
        *(rows, panels, out.address, out.row, out.panel),
        *(addend.address, keep, scale),
        *(left.ctypes.data, *(stride // 4 for stride in left.strides)),
        *(right.address, right.row, right.panel, depth),
        *(bounds.ctypes.data, len(gaps) // 2),
    )
    is_used = np.ones(depth, bool)
    for first, last in zip(gaps[::2], gaps[1::2], strict=True):
        is_used[first:last] = False
    used = left[:rows, :depth][:, is_used].astype(np.float64)
    product = np.tensordot(used, right.values[is_used].astype(np.float64), axes=1)
    expected = {
        "add_product": keep * begun + scale * product,
        "add_product_and": keep * begun + added + scale * product,
        "set_product": product,
    }[name]
    np.testing.assert_allclose(out.values, expected, rtol=1e-5, atol=1e-5)
    out.values[:] = UNTOUCHED
    assert (out.memory == UNTOUCHED).all()


@settings(max_examples=20, deadline=None)
@given(rows=st.integers(1, 45), panels=st.integers(1, 5), seed=st.integers(0, 99))
def test_the_bits_of_a_row_do_not_depend_on_the_tile_that_it_is_in(
    rows: int, panels: int, seed: int
) -> None:
    rng, depth = np.random.default_rng(seed), 30
    left = rng.normal(size=(rows, depth)).astype(np.float32)
    right = rng.normal(size=(panels, depth, LANES)).astype(np.float32)
    bounds = np.zeros(2, np.int64)

    def multiply(first: int, num: int, panel: int, num_panels: int) -> NDArray[np.float32]:
        out = np.zeros((num_panels, num, LANES), np.float32)
        PRODUCTS["set_product"](
            *(num, num_panels, out.ctypes.data, LANES, num * LANES, out.ctypes.data, 0.0, 1.0),
            *(left[first:].ctypes.data, depth, 1),
            *(right[panel:].ctypes.data, LANES, depth * LANES, depth, bounds.ctypes.data, 0),
        )
        return out

    together = multiply(0, rows, 0, panels)
    for row in range(rows):
        for panel in range(panels):
            alone = multiply(row, 1, panel, 1)
            assert alone.tobytes() == together[panel, row].tobytes()


@pytest.mark.parametrize("factor", [1.0, -0.3])
@pytest.mark.parametrize(("out_row", "row"), [(16, 16), (784, 16), (16, 785), (17, 19)])
def test_a_square_is_transposed(out_row: int, row: int, factor: float) -> None:
    rng = np.random.default_rng(row)
    square = rng.normal(size=(SQUARE, row)).astype(np.float32)
    out = np.full((SQUARE, out_row), UNTOUCHED, np.float32)
    TRANSPOSE(out.ctypes.data, out_row, square.ctypes.data, row, factor)
    assert np.array_equal(out[:, :SQUARE], np.float32(factor) * square[:, :SQUARE].T)
    assert (out[:, SQUARE:] == UNTOUCHED).all()


def test_bytes_are_scaled_and_rounded_twice() -> None:
    rng = np.random.default_rng(0)
    factor, shift = rng.normal(size=(2, LANES)).astype(np.float32)
    out = np.full(LANES + 1, UNTOUCHED, np.float32)
    for some in np.arange(256, dtype=np.uint8).reshape(-1, LANES):
        addresses = (one.ctypes.data for one in (out, some, factor, shift))
        SCALE_BYTES(*addresses)
        assert np.array_equal(out[:LANES], some.astype(np.float32) * factor + shift)
    assert out[LANES] == UNTOUCHED
