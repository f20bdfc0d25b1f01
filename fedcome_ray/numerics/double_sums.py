"""Sums over updates in double precision, written for Numba: see `geometry.py`, which calls them."""

from numba import njit

from fedcome_ray.numerics.tiles import DOUBLES, SIDE, Doubles, Floats, add_inner_products, starting

WIDTH = 256  # params that are converted at a time: those of a cohort stay in the cache
STRETCH = 2048  # params that are summed at a time: shorter pieces of rows wait for memory


def gram_matrix(
    updates: Floats, num_rows: int, dim: int, gram: Doubles, gram_row: int, memory: Doubles
) -> None:
    """Add the inner products of all rows, of the lower triangle at least, to `gram`.

    It and the memory, `[rows, WIDTH]`, have zeros in the rows beyond, up to a multiple of `SIDE`.
    """
    for first in range(0, dim, WIDTH):
        width = min(WIDTH, dim - first)
        _convert(updates, num_rows, dim, first, width, memory)
        length = -(-width // DOUBLES) * DOUBLES
        for row in range(0, num_rows, SIDE):
            for column in range(0, row + 1, SIDE):
                add_inner_products(
                    starting(gram, row * gram_row + column), gram_row,
                    starting(memory, row * WIDTH), starting(memory, column * WIDTH), WIDTH, length,
                )  # fmt: skip


@njit(error_model="numpy")
def _convert(
    updates: Floats, num_rows: int, dim: int, first: int, width: int, memory: Doubles
) -> None:
    """Some columns in double precision, zeros behind them."""
    for row in range(num_rows):
        own, converted = starting(updates, row * dim + first), starting(memory, row * WIDTH)
        for place in range(width):
            converted[place] = own[place]
        for place in range(width, -(-width // DOUBLES) * DOUBLES):
            converted[place] = 0.0


def weighted_sum(
    updates: Floats, num_rows: int, dim: int, weights: Doubles, total: Floats, memory: Doubles
) -> None:
    """The rows times their weights, added up one after the other and rounded at the end.

    Four rows are read side by side, since memory answers several requests at a time.
    """
    together = num_rows // 4 * 4
    for first in range(0, dim, STRETCH):
        width = min(STRETCH, dim - first)
        for place in range(width):
            memory[place] = 0.0
        for row in range(0, together, 4):
            a, b, c, d = weights[row], weights[row + 1], weights[row + 2], weights[row + 3]
            of_a = starting(updates, row * dim + first)
            of_b, of_c, of_d = starting(of_a, dim), starting(of_a, 2 * dim), starting(of_a, 3 * dim)
            for place in range(width):
                so_far = memory[place] + a * of_a[place] + b * of_b[place]
                memory[place] = so_far + c * of_c[place] + d * of_d[place]
        for row in range(together, num_rows):
            weight, own = weights[row], starting(updates, row * dim + first)
            for place in range(width):
                memory[place] += weight * own[place]
        for place in range(width):
            total[first + place] = memory[place]
