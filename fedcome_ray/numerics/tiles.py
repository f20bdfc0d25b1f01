"""Matrix products in the vectors of the processor, for functions that Numba compiles.

A product is computed in tiles: some rows by one or two panels of sixteen columns, whose sums stay
in registers while the products are added up one after the other, each rounded once (fused
multiply-add). So the bits of a result do not depend on the tiles, nor on the width of the
processor's vectors: they are the same on every machine. The right factor is kept in panels, as the
tiles read it, which saves the copies that a library has to make of its operands.
"""

from collections.abc import Callable
from functools import reduce
from itertools import product
from typing import Any, TypeAlias

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from fedcome_ray.numerics import machine_code

LANES = 16
"""Columns of a tile and of a panel: one, two or four registers, by processor."""
_HAS_AVX512 = "+avx512f" in machine_code.processor()[1].split(",")
MOST_ROWS, MOST_PANELS = (14, 2) if _HAS_AVX512 else (6, 1)
"""Of a tile: so many that their sums fill the registers, but for those of a step's factors. Every
number that is read is multiplied at least twice then, since some processors read no faster than
they multiply, and enough sums are under way to hide how long each of them takes.
"""

# Addresses of numbers in memory: `numbers[place]` reads and writes them, unchecked.
Bytes: TypeAlias = Any
Doubles: TypeAlias = Any
Floats: TypeAlias = Any
Integers: TypeAlias = Any
Words: TypeAlias = Any  # unsigned
Number: TypeAlias = Any  # of 32 bits

_emitted: Any = intrinsic
_FLOATS, _PLACE, _NUMBER = types.CPointer(types.float32), types.int64, types.float32
_PLACES = types.CPointer(types.int64)
_VECTOR = ir.VectorType(ir.FloatType(), LANES)
_INT = ir.IntType(32)
_LONG = ir.IntType(64)


class _Vectors:
    """Emits code that works with vectors of so many numbers."""

    def __init__(self, builder: Any, lanes: int = LANES) -> None:
        self.builder, self._lanes = builder, lanes
        self._kind = ir.VectorType(ir.FloatType(), lanes)

    def splat(self, number: Any) -> Any:
        """A vector of one number."""
        unset = ir.Constant(self._kind, ir.Undefined)
        first = self.builder.insert_element(unset, number, _INT(0))
        return self.shuffle(first, unset, [0] * self._lanes)

    def shuffle(self, left: Any, right: Any, places: list[int]) -> Any:
        """Numbers of two vectors; the places in the right one follow those in the left one."""
        mask = ir.Constant(ir.VectorType(_INT, self._lanes), places)
        return self.builder.shuffle_vector(left, right, mask)

    def load(self, floats: Any, place: Any) -> Any:
        return self.builder.load(self._vector(floats, place), align=4)

    def store(self, vector: Any, floats: Any, place: Any) -> None:
        self.builder.store(vector, self._vector(floats, place), align=4)

    def _vector(self, floats: Any, place: Any) -> Any:
        at = self.builder.gep(floats, [place])
        return self.builder.bitcast(at, self._kind.as_pointer())


class _Tile(_Vectors):
    """Emits the code of a tile of so many rows and panels."""

    def __init__(self, builder: Any, rows: int, panels: int) -> None:
        super().__init__(builder)
        self._rows, self._panels = rows, panels
        kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
        self._fma = cgutils.get_or_insert_function(builder.module, kind, "llvm.fma.v16f32")

    def sums(
        self, left: Any, left_row: Any, left_next: Any, right: Any, right_next: Any,
        right_panel: Any, depth: Any, gaps: Any, num_gaps: Any,
    ) -> list[Any]:  # fmt: skip
        """Of each row and panel: the sum over `depth` products of a number on the left, the same
        for all columns, and a vector on the right; but for those within gaps, pairs of where they
        begin and end. One pair beyond the last is read and not used, so there must be some memory.
        """
        builder, num_sums = self.builder, self._rows * self._panels
        before = builder.block
        stretch, loop, ended, after = map(
            builder.append_basic_block, ("stretch", "loop", "ended", "after")
        )
        builder.branch(stretch)

        builder.position_at_end(stretch)  # between two gaps
        number, first = builder.phi(_LONG), builder.phi(_LONG)
        so_far = [builder.phi(_VECTOR) for _ in range(num_sums)]
        gap = builder.gep(gaps, [builder.shl(number, _LONG(1))])
        is_last = builder.icmp_signed("==", number, num_gaps)
        last = builder.select(is_last, depth, builder.load(gap))
        builder.cbranch(builder.icmp_signed("<", first, last), loop, ended)

        builder.position_at_end(loop)
        place = builder.phi(_LONG)
        place.add_incoming(first, stretch)
        partial = [builder.phi(_VECTOR) for _ in range(num_sums)]
        beside = builder.mul(place, right_next)
        vectors = [
            self.load(right, builder.add(beside, builder.mul(right_panel, _LONG(panel))))
            for panel in range(self._panels)
        ]
        column = builder.gep(left, [builder.mul(place, left_next)])
        found: list[Any] = []
        for row in range(self._rows):  # each is read when it is due: no register has to keep it
            factor = builder.load(builder.gep(column, [builder.mul(left_row, _LONG(row))]))
            splat = self.splat(factor)
            for vector in vectors:
                found.append(self.fma(splat, vector, partial[len(found)]))
        for part, begun, total in zip(partial, so_far, found, strict=True):
            part.add_incoming(begun, stretch)
            part.add_incoming(total, loop)
        following = builder.add(place, _LONG(1))
        place.add_incoming(following, loop)
        builder.cbranch(builder.icmp_signed("<", following, last), loop, ended)

        builder.position_at_end(ended)
        sums = [builder.phi(_VECTOR) for _ in range(num_sums)]
        for total, begun, ending in zip(sums, so_far, found, strict=True):
            total.add_incoming(begun, stretch)
            total.add_incoming(ending, loop)
            begun.add_incoming(_VECTOR([0.0] * LANES), before)
            begun.add_incoming(total, ended)
        number.add_incoming(_LONG(0), before)
        number.add_incoming(builder.add(number, _LONG(1)), ended)
        first.add_incoming(_LONG(0), before)
        first.add_incoming(builder.load(builder.gep(gap, [_LONG(1)])), ended)
        builder.cbranch(is_last, after, stretch)

        builder.position_at_end(after)
        return sums

    def fma(self, factor: Any, other: Any, addend: Any) -> Any:
        return self.builder.call(self._fma, [factor, other, addend])


Outcome = Callable[[_Tile, Any, Any, Any, Any, Any, Any], Any]
"""(tile, sum, out, its place, addend, keep, scale) -> what is written there"""


def _sum(tile: _Tile, total: Any, out: Any, place: Any, addend: Any, keep: Any, scale: Any) -> Any:
    return total


def _sum_added(
    tile: _Tile, total: Any, out: Any, place: Any, addend: Any, keep: Any, scale: Any
) -> Any:
    kept = tile.builder.fmul(tile.splat(keep), tile.load(out, place))
    return tile.fma(tile.splat(scale), total, kept)


def _sum_and_addend_added(
    tile: _Tile, total: Any, out: Any, place: Any, addend: Any, keep: Any, scale: Any
) -> Any:
    kept = tile.fma(tile.splat(keep), tile.load(out, place), tile.load(addend, place))
    return tile.fma(tile.splat(scale), total, kept)


def _computed_by(outcome: Outcome) -> Any:
    """A function that computes a tile."""

    @_emitted
    def compute(
        typing_context: Any, rows: Any, panels: Any, out: Any, out_row: Any, out_panel: Any,
        addend: Any, keep: Any, scale: Any,
        left: Any, left_row: Any, left_next: Any, right: Any, right_next: Any, right_panel: Any,
        depth: Any, gaps: Any, num_gaps: Any,
    ) -> Any:  # fmt: skip
        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            rows, panels, out, out_row, out_panel, *others = arguments
            after = builder.append_basic_block("after")
            shape = builder.add(builder.mul(rows, _LONG(MOST_PANELS + 1)), panels)
            choice = builder.switch(shape, after)
            shapes = product(range(1, MOST_ROWS + 1), range(1, MOST_PANELS + 1))
            for num_rows, num_panels in shapes:
                case = builder.append_basic_block(f"tile_{num_rows}_{num_panels}")
                choice.add_case(_LONG(num_rows * (MOST_PANELS + 1) + num_panels), case)
                builder.position_at_end(case)
                tile = _Tile(builder, num_rows, num_panels)
                sums = tile.sums(*others[3:])
                for number, total in enumerate(sums):
                    row, panel = map(_LONG, divmod(number, num_panels))
                    place = builder.add(builder.mul(out_row, row), builder.mul(out_panel, panel))
                    tile.store(outcome(tile, total, out, place, *others[:3]), out, place)
                builder.branch(after)
            builder.position_at_end(after)
            return context.get_dummy_value()

        to = (_PLACE, _PLACE, _FLOATS, _PLACE, _PLACE, _FLOATS, _NUMBER, _NUMBER)
        of = (_FLOATS, _PLACE, _PLACE, _FLOATS, _PLACE, _PLACE, _PLACE, _PLACES, _PLACE)
        return types.void(*to, *of), emit

    return compute


def _product_by(outcome: Outcome) -> Any:
    compute = _computed_by(outcome)

    @njit(error_model="numpy")
    def compute_all(
        rows: int, panels: int, out: Floats, out_row: int, out_panel: int,
        addend: Floats, keep: Number, scale: Number,
        left: Floats, left_row: int, left_next: int,
        right: Floats, right_next: int, right_panel: int, depth: int,
        gaps: Integers, num_gaps: int,
    ) -> None:  # fmt: skip
        tiles = -(-rows // MOST_ROWS)
        least, num_larger = rows // tiles, rows % tiles
        for panel in range(0, panels, MOST_PANELS):
            of_panels = starting(right, panel * right_panel)
            first = 0
            for tile in range(tiles):  # as nearly of the same size as can be
                size = least + 1 if tile < num_larger else least
                place = panel * out_panel + first * out_row
                compute(
                    size, min(MOST_PANELS, panels - panel),
                    starting(out, place), out_row, out_panel,
                    starting(addend, place), keep, scale,
                    starting(left, first * left_row), left_row, left_next,
                    of_panels, right_next, right_panel, depth, gaps, num_gaps,
                )  # fmt: skip
                first += size

    return compute_all


DOUBLES = 8
"""Numbers of a vector in double precision."""
SIDE = 4 if _HAS_AVX512 else 2
"""Rows and columns of a tile of inner products, whose vectors of sums fill the registers."""


@_emitted
def add_inner_products(
    typing_context: Any, out: Any, out_row: Any, left: Any, right: Any, row: Any, length: Any
) -> Any:
    """Add the inner products of `SIDE` rows on the left and on the right, `length` doubles each.

    Every eighth product goes into the same sum; the eight of them are added up at the end.
    """

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        out, out_row, left, right, row, length = arguments
        vector = ir.VectorType(ir.DoubleType(), DOUBLES)
        fma = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(vector, [vector] * 3), "llvm.fma.v8f64"
        )

        def rows_of(side: Any, place: Any) -> list[Any]:
            starts = (builder.add(place, builder.mul(row, _LONG(number))) for number in range(SIDE))
            at = (builder.bitcast(builder.gep(side, [s]), vector.as_pointer()) for s in starts)
            return [builder.load(pointer, align=8) for pointer in at]

        before = builder.block
        loop, after = builder.append_basic_block("loop"), builder.append_basic_block("after")
        builder.branch(loop)
        builder.position_at_end(loop)
        place = builder.phi(_LONG)
        place.add_incoming(_LONG(0), before)
        partial = [builder.phi(vector) for _ in range(SIDE * SIDE)]
        pairs = product(rows_of(left, place), rows_of(right, place))
        found = [
            builder.call(fma, [*pair, sum_]) for pair, sum_ in zip(pairs, partial, strict=True)
        ]
        for sum_, total in zip(partial, found, strict=True):
            sum_.add_incoming(vector([0.0] * DOUBLES), before)
            sum_.add_incoming(total, loop)
        following = builder.add(place, _LONG(DOUBLES))
        place.add_incoming(following, loop)
        builder.cbranch(builder.icmp_signed("<", following, length), loop, after)
        builder.position_at_end(after)
        for number, total in enumerate(found):
            numbers = [builder.extract_element(total, _INT(lane)) for lane in range(DOUBLES)]
            where = builder.mul(out_row, _LONG(number // SIDE))
            where = builder.gep(out, [builder.add(where, _LONG(number % SIDE))])
            builder.store(reduce(builder.fadd, numbers, builder.load(where)), where)
        return context.get_dummy_value()

    numbers = types.CPointer(types.float64)
    return types.void(numbers, _PLACE, numbers, numbers, _PLACE, _PLACE), emit


SQUARE = 16 if _HAS_AVX512 else 8
"""Rows and columns of what is transposed at once: as much as registers hold."""


@_emitted
def transpose(
    typing_context: Any, out: Any, out_row: Any, square: Any, row: Any, factor: Any
) -> Any:
    """Write a square of `SQUARE` rows and columns, times a factor, with rows for columns."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        out, out_row, square, row, factor = arguments
        vectors, lanes = _Vectors(builder, SQUARE), range(SQUARE)
        splat = vectors.splat(factor)
        rows = [
            builder.fmul(splat, vectors.load(square, builder.mul(row, _LONG(number))))
            for number in lanes
        ]
        half = SQUARE // 2
        # Upper right and lower left quarters change places, then those of each quarter, and so on.
        while half:
            upper = [lane + SQUARE - half if lane & half else lane for lane in lanes]
            lower = [lane + SQUARE if lane & half else lane + half for lane in lanes]
            for first in [number for number in lanes if not number & half]:
                pair = rows[first], rows[first + half]
                rows[first] = vectors.shuffle(*pair, upper)
                rows[first + half] = vectors.shuffle(*pair, lower)
            half //= 2
        for number in lanes:
            vectors.store(rows[number], out, builder.mul(out_row, _LONG(number)))
        return context.get_dummy_value()

    return types.void(_FLOATS, _PLACE, _FLOATS, _PLACE, _NUMBER), emit


@_emitted
def scale_bytes(typing_context: Any, out: Any, given: Any, factor: Any, shift: Any) -> Any:
    """Write `LANES` bytes as numbers, times their factors, plus their shifts."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        out, given, factor, shift = arguments
        vectors, here = _Vectors(builder), _LONG(0)
        bytes_ = builder.bitcast(given, ir.VectorType(ir.IntType(8), LANES).as_pointer())
        whole = builder.zext(builder.load(bytes_, align=1), ir.VectorType(_INT, LANES))
        scaled = builder.fmul(builder.sitofp(whole, _VECTOR), vectors.load(factor, here))
        vectors.store(builder.fadd(scaled, vectors.load(shift, here)), out, here)
        return context.get_dummy_value()

    return types.void(_FLOATS, types.CPointer(types.uint8), _FLOATS, _FLOATS), emit


@_emitted
def starting(typing_context: Any, numbers: Any, place: Any) -> Any:
    """The numbers from a place on."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.gep(arguments[0], [arguments[1]])

    return numbers(numbers, _PLACE), emit


@_emitted
def prefetch(typing_context: Any, numbers: Any, place: Any) -> Any:
    """Have the memory at a place brought near before it is read."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, _INT, _INT, _INT])
        ask = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        at = builder.bitcast(builder.gep(arguments[0], [arguments[1]]), byte)
        to_read, into_the_second_cache, of_data = _INT(0), _INT(2), _INT(1)
        builder.call(ask, [at, to_read, into_the_second_cache, of_data])
        return context.get_dummy_value()

    return types.void(numbers, _PLACE), emit


@_emitted
def as_bits(typing_context: Any, number: Any) -> Any:
    """The bits of a float32."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], _INT)

    return types.int32(types.float32), emit


@_emitted
def from_bits(typing_context: Any, bits: Any) -> Any:
    """The float32 of these bits."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), emit


set_product = _product_by(_sum)
"""`out = left @ right`"""
add_product = _product_by(_sum_added)
"""`out = keep * out + scale * left @ right`"""
add_product_and = _product_by(_sum_and_addend_added)
"""`out = keep * out + addend + scale * left @ right`"""
