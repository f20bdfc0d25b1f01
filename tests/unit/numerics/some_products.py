"""Products of matrices of any shape, written for Numba: see `test_tiles.py`, which calls them."""

from fedcome_ray.numerics.tiles import (
    Floats,
    Integers,
    Number,
    add_product,
    add_product_and,
    set_product,
)


def multiply(
    kind: int,
    rows: int, panels: int, out: Floats, out_row: int, out_panel: int,
    addend: Floats, keep: Number, scale: Number,
    left: Floats, left_row: int, left_next: int,
    right: Floats, right_next: int, right_panel: int, depth: int,
    gaps: Integers, num_gaps: int,
) -> None:  # fmt: skip
    """Of the three kinds, in the order in which they are imported."""
    if kind == 0:
        add_product(
            rows, panels, out, out_row, out_panel, addend, keep, scale, left, left_row, left_next,
            right, right_next, right_panel, depth, gaps, num_gaps,
        )  # fmt: skip
    elif kind == 1:
        add_product_and(
            rows, panels, out, out_row, out_panel, addend, keep, scale, left, left_row, left_next,
            right, right_next, right_panel, depth, gaps, num_gaps,
        )  # fmt: skip
    else:
        set_product(
            rows, panels, out, out_row, out_panel, addend, keep, scale, left, left_row, left_next,
            right, right_next, right_panel, depth, gaps, num_gaps,
        )  # fmt: skip
