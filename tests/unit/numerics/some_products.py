"""What is emitted for tiles, as functions of their own: see `test_tiles.py`, which calls them."""

from fedcome_ray.numerics import tiles
from fedcome_ray.numerics.tiles import Bytes, Floats, Number

add_product = tiles.add_product.py_func
add_product_and = tiles.add_product_and.py_func
set_product = tiles.set_product.py_func


def scale_bytes(out: Floats, given: Bytes, factor: Floats, shift: Floats) -> None:
    tiles.scale_bytes(out, given, factor, shift)


def transpose(out: Floats, out_row: int, square: Floats, row: int, factor: Number) -> None:
    tiles.transpose(out, out_row, square, row, factor)
