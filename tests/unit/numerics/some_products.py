"""The products in tiles as functions of their own: see `test_tiles.py`, which calls them."""

from fedcome_ray.numerics import tiles

add_product = tiles.add_product.py_func
add_product_and = tiles.add_product_and.py_func
set_product = tiles.set_product.py_func
