"""Values of Python's as Arrow arrays, and numbers of Arrow's as numpy's, by their buffers.

``pa.array``, ``pa.scalar`` and ``to_numpy`` do this too, but look whether it might be of pandas first, and
import it where it is installed: 0.3 s and 50 MB in each of the seven processes in which Spark runs a stream.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "bytes_array",
    "int32_array",
    "int64_array",
    "numbers_of",
    "repeat_value",
    "string_array",
]


def string_array(values: Sequence[str]) -> pa.Array:
    return _of_bytes(pa.string(), [value.encode() for value in values])


def bytes_array(values: Sequence[bytes]) -> pa.Array:
    return _of_bytes(pa.binary(), values)


def _of_bytes(kind: pa.DataType, values: Sequence[bytes]) -> pa.Array:
    ends = array("i", [0])
    for value in values:
        ends.append(ends[-1] + len(value))
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(kind, len(values), buffers)


def int32_array(values: Sequence[int]) -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(array("i", values))])


def int64_array(numbers: np.ndarray[Any, Any]) -> pa.Array:
    """Numbers of numpy's, one behind the other, without a copy."""
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def repeat_value(value: str | int | None, kind: pa.DataType, count: int) -> pa.Array:
    """A column of one text or 32-bit number, or of nothing."""
    if value is None:
        return pa.nulls(count, kind)
    one = string_array([value]) if isinstance(value, str) else int32_array([value])
    return pa.repeat(one.cast(kind)[0], count)


def numbers_of(column: pa.Array, kind: Any) -> np.ndarray[Any, Any]:
    """A column of numbers, whose type in numpy is ``kind``, without a copy; what stands for a null is
    any number."""
    import numpy as np

    kind = np.dtype(kind)
    values = column.buffers()[1]
    if values is None:  # no rows: Arrow may leave the buffers out
        return np.zeros(len(column), kind)
    return np.frombuffer(values, kind, len(column), column.offset * kind.itemsize)
