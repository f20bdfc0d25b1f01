"""A table that somebody else wrote: its columns as arrays, or what is wrong with them."""

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedcome_ray.datasets.npz_files import AnyArray
from fedcome_ray.errors import DataError, nearest

COLUMNS_SHOWN = 20
UNREADABLE = (OSError, ValueError, SyntaxError, TypeError, struct.error, EOFError)
"""What Pillow raises of bytes that are no picture."""


def shown(value: object, most: int = 40) -> str:
    """A value for a message: on one line, and not a book."""
    text = value if isinstance(value, str) else str(value)
    text = text if text.isprintable() else ascii(text)
    return f"`{text if len(text) <= most else text[:most] + '…'}`"


def not_utf8(path: Path, where: str) -> DataError:
    return DataError(f"{path}: {where} is not UTF-8 text; save the file as UTF-8")


@dataclass(frozen=True)
class Table:
    """Columns of equal length."""

    path: Path
    data: Any  # pyarrow's, which has no types
    first_row: int
    """How the first row is numbered: 2 below a header, as spreadsheets show it, or else 0."""

    def __post_init__(self) -> None:
        try:
            names = self.names
        except UnicodeDecodeError:
            raise not_utf8(self.path, "the header") from None
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise DataError(f"{self.path}: two columns are called {shown(twice[0])}")
        if self.data.num_rows == 0:
            raise DataError(f"{self.path} has no rows")

    @property
    def names(self) -> list[str]:
        return list(self.data.column_names)

    @property
    def num_rows(self) -> int:
        return int(self.data.num_rows)

    def check_has(self, option: str, name: str) -> None:
        if name not in self.names:
            near = nearest(name, self.names)
            hint = f"did you mean `{near}`? " if near else ""
            few = ", ".join(self.names[:COLUMNS_SHOWN])
            more = len(self.names) - COLUMNS_SHOWN
            raise DataError(
                f"{option}: {self.path} has no column {shown(name)}; {hint}it has {few}"
                + (f" and {more} more" if more > 0 else "")
            )

    def complaint(self, name: str, row: int | np.integer[Any], text: str) -> DataError:
        return DataError(
            f"{self.path}: column {shown(name)}, row {int(row) + self.first_row}: {text}"
        )

    def is_number(self, name: str) -> bool:
        kind = self._values(name).type
        return _is_real(kind) or bool(pa.types.is_decimal(kind))

    def is_array(self, name: str) -> bool:
        """Whether each value is a whole example."""
        kind = self._values(name).type
        return _is_list(kind) or _is_bytes(kind) or bool(pa.types.is_struct(kind))

    def identities(self, name: str) -> AnyArray:
        """What tells rows apart, such as labels and clients: whole numbers or texts."""
        values = self._complete(name)
        if _is_text(values.type):
            texts = np.array(values.to_pylist(), dtype=np.str_)
            for row in np.flatnonzero(texts == ""):
                raise self.complaint(name, row, "there is no value")
            return texts
        if not self.is_number(name):
            raise self.complaint(
                name, 0, f"expected whole numbers or texts, got {shown(values[0])} ({values.type})"
            )
        if pa.types.is_signed_integer(values.type):
            return np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.int64)
        numbers = self._doubles(values)
        for row in np.flatnonzero((numbers != np.floor(numbers)) | (np.abs(numbers) > 2**53)):
            raise self.complaint(
                name, row, f"expected whole numbers or texts, got {shown(values[int(row)])}"
            )
        return numbers.astype(np.int64)

    def numbers(self, name: str) -> NDArray[np.float32]:
        """A feature."""
        values = self._complete(name)
        if _is_text(values.type):
            for place, text in enumerate(values.to_pylist()):
                if not _is_decimal(text):
                    raise self.complaint(
                        name,
                        place,
                        f"expected a number, got {shown(text)}; leave the column out with --drop "
                        f"{name}, or make a feature of each of its values with --one-hot {name}",
                    )
        if not self.is_number(name):
            raise self.complaint(
                name,
                0,
                f"expected numbers, got {shown(values[0])} ({values.type}); leave the column out "
                f"with --drop {name}",
            )
        doubles = self._doubles(values)
        with np.errstate(over="ignore"):
            floats = doubles.astype(np.float32)
        for row in np.flatnonzero(~np.isfinite(floats)):
            raise self.complaint(
                name, row, f"expected a finite float32 number, got {shown(doubles[row])}"
            )
        return floats

    def array(self, name: str) -> AnyArray:
        """A column that has whole examples: pictures, or lists of equal length of numbers.

        Bytes stay bytes, and a list of other whole numbers is tokens; all else becomes float32.
        """
        values = self._complete(name)
        if pa.types.is_struct(values.type) and "bytes" in [field.name for field in values.type]:
            values = values.field("bytes")
        if _is_bytes(values.type):
            return self._pictures(name, values)
        shape = [self.num_rows]
        while _is_list(values.type):
            lengths = pc.list_value_length(values).to_numpy(zero_copy_only=False)
            each = len(lengths) // self.num_rows
            for place in np.flatnonzero((lengths != lengths[0]) | (lengths == 0)):
                raise self.complaint(
                    name,
                    place // each,
                    f"expected lists of equal length, got {lengths[place]:g} values "
                    f"where the first has {lengths[0]:g}",
                )
            shape.append(int(lengths[0]))
            values = values.flatten()
        if len(shape) == 1 or not _is_real(values.type):
            raise self.complaint(
                name,
                0,
                f"expected a number, a list of numbers or a picture, got "
                f"{self._values(name).type}; leave the column out with --drop {name}",
            )
        return self._checked_array(name, values, shape)

    def _checked_array(self, name: str, values: Any, shape: list[int]) -> AnyArray:
        each = len(values) // self.num_rows
        if values.null_count:
            row = int(np.argmax(pc.is_null(values).to_numpy(zero_copy_only=False))) // each
            raise self.complaint(name, row, "there is no value")
        found: AnyArray = values.to_numpy(zero_copy_only=False).reshape(shape)
        if found.dtype == np.uint8 or (found.dtype.kind in "iu" and found.ndim == 2):
            return found if found.dtype == np.uint8 else found.astype(np.int64)
        with np.errstate(over="ignore"):
            floats = found.astype(np.float32)
        for place in np.flatnonzero(~np.isfinite(floats)):
            raise self.complaint(
                name,
                place // each,
                f"expected finite float32 numbers, got {shown(found.flat[place])}",
            )
        return floats

    def _pictures(self, name: str, values: Any) -> NDArray[np.uint8]:
        """Decoded, channels first."""
        pictures = list(self._decoded(name, values))
        for row, picture in enumerate(pictures):
            if picture.shape != pictures[0].shape:
                raise self.complaint(
                    name,
                    row,
                    f"expected pictures of one size, got {_size(picture)} where the first is "
                    f"{_size(pictures[0])}",
                )
        return np.stack(pictures)

    def _decoded(self, name: str, values: Any) -> Iterator[NDArray[np.uint8]]:
        from PIL import Image

        for row, content in enumerate(values.to_pylist()):
            if content is None:
                raise self.complaint(name, row, "the picture is in another file; embed it")
            try:
                with Image.open(io.BytesIO(content)) as picture:
                    if picture.mode not in {"1", "L", "P", "RGB"}:
                        raise ValueError(f"mode {picture.mode}, allowed: 1, L, P, RGB")
                    grey = picture.mode in {"1", "L"}
                    pixels = np.asarray(picture.convert("L" if grey else "RGB"))
            except (*UNREADABLE, Image.DecompressionBombError) as error:
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                raise self.complaint(name, row, f"no picture: {reason}") from None
            yield pixels[None] if grey else np.ascontiguousarray(np.moveaxis(pixels, -1, 0))

    def _values(self, name: str) -> Any:
        """One array of a plain type."""
        values = self.data.column(name)
        if isinstance(values.type, pa.BaseExtensionType):
            values = pa.chunked_array(
                [chunk.storage for chunk in values.chunks], values.type.storage_type
            )
        values = values.combine_chunks()
        values = values.chunk(0) if isinstance(values, pa.ChunkedArray) else values
        return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values

    def _complete(self, name: str) -> Any:
        """The values of a column that lacks none."""
        values = self._values(name)
        if values.null_count:
            row = np.argmax(pc.is_null(values).to_numpy(zero_copy_only=False))
            raise self.complaint(
                name, row, f"there is no value ({values.null_count} are missing); fill it in"
            )
        return values

    @staticmethod
    def _doubles(values: Any) -> NDArray[np.float64]:
        doubles = pc.cast(values, pa.float64(), safe=False)
        return np.asarray(doubles.to_numpy(zero_copy_only=False))


def _is_text(kind: Any) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _is_bytes(kind: Any) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_list(kind: Any) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _is_real(kind: Any) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    )


def _is_decimal(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _size(picture: NDArray[np.uint8]) -> str:
    return "x".join(map(str, picture.shape))
