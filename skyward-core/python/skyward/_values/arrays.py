"""Arrays, which are extension 1 of the wire's values.

NumPy and the frameworks are used only if the payload has imported them.
"""

from __future__ import annotations

import sys
from math import isnan, prod
from numbers import Real
from typing import Any, Final, NamedTuple

import msgspec

from .._core.memory import allocate
from . import labels, tensors, times
from .errors import EncodeError

_DTYPES: Final = frozenset(
    {"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"}
    | {"float16", "float32", "float64", "complex64", "complex128"}
)
_EXTENDED: Final = frozenset(
    {"bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz"}
    | {"float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"}
)
"""Dtypes that NumPy has only with the package `ml_dtypes`; they are sent by name too."""

_LARGE: Final = 1 << 20
_encode = msgspec.msgpack.Encoder().encode


class Array(NamedTuple):
    """The form in which an array-like value is sent.

    Either elements with their description, or, if `elements` is None, a plain value.
    """

    prefix: bytes
    elements: bytes | memoryview | None
    plain: Any = None


class ArrayError(ValueError):
    """An array cannot be converted, in either direction."""


def is_array(value: object) -> bool:
    """Return whether the value is an array of any framework; NumPy scalars are not."""
    kind = type(value)
    return hasattr(kind, "shape") and hasattr(kind, "dtype") and not _is_numpy_scalar(value)


def to_array(value: Any) -> Array | None:
    """Convert an array, tensor or NumPy scalar; return None for any other value.

    Raises:
        EncodeError: the value is an array, but its elements cannot be sent.
    """
    kind = type(value)
    if not hasattr(kind, "dtype"):
        return None
    try:
        if _is_numpy_scalar(value):
            return _scalar(value)
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):
            return _tensor(torch, value)
        if hasattr(kind, "is_fully_addressable"):
            return _jax(value)
        numpy = sys.modules.get("numpy")
        if numpy is None or not (hasattr(kind, "__array__") and hasattr(kind, "shape")):
            return None
        if lost := labels.lost(value, kind):
            raise ArrayError(lost)
        items = _items(value, kind)
        if items is not None:
            return Array(b"", None, items)
        return _numpy(value if isinstance(value, numpy.ndarray) else numpy.asarray(value))
    except (ArrayError, tensors.TensorError, times.TimeError) as error:
        raise EncodeError(str(error), value) from None


def from_shared(code: int, data: memoryview) -> Any:
    """Decode extension 1 from memory that will be overwritten; the array is a copy."""
    return _from_wire(code, data, copy=True)


def from_owned(code: int, data: memoryview) -> Any:
    """Decode extension 1 in place; the array uses the message's memory."""
    return _from_wire(code, data, copy=False)


def _is_numpy_scalar(value: object) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.generic)


def _items(value: Any, kind: type) -> list[Any] | None:
    """Return the items of a polars or pandas column that NumPy would change, or None.

    NumPy has no nulls, time zones or decimals.
    """
    package = kind.__module__.partition(".")[0]
    if package == "polars":
        dtype = value.dtype
        if dtype.is_temporal():
            if getattr(dtype, "time_zone", None) is None:
                return None
            if dtype.time_unit == "ns":
                raise ArrayError('Python times with a zone have no nanoseconds; send `.dt.to_string("iso:strict")`')
        elif not value.null_count() and (dtype.is_integer() or dtype.is_float() or str(dtype) == "Boolean"):
            return None
        return list(value.to_list())
    return _with_none(value, kind) if package == "pandas" else None


def _with_none(value: Any, kind: type) -> list[Any] | None:
    """Return the items of a pandas column that has missing items but no floats, or None.

    NumPy would represent the missing items by NaN.
    """
    dtype, items = value.dtype, []
    has_null = type(getattr(dtype, "na_value", None)).__name__ == "NAType"
    categories = getattr(dtype, "categories", None)
    if categories is not None:
        may_lack = categories.dtype.kind not in "fcmM"
    else:
        may_lack = type(dtype).__name__ == "StringDtype" or (str(dtype) == "object" and not hasattr(kind, "levels"))
    if (has_null or may_lack) and value.isna().any():
        items = list(value.to_list() if hasattr(kind, "to_list") else value.tolist())
    if not items or has_null:
        return items or None
    if str(dtype) == "object" and all(_is_number(item) or item is None for item in items):
        return None
    return [None if isinstance(item, float) and isnan(item) else item for item in items]


def _is_number(item: object) -> bool:
    return isinstance(item, Real) and not isinstance(item, bool)


def _scalar(value: Any) -> Array:
    dtype = value.dtype
    if dtype.kind in "mM":
        return Array(b"", None, times.plain(sys.modules["numpy"].asarray(value)))
    if dtype.names is not None:
        raise ArrayError(_record(dtype, "a record", "record"))
    # `item()` would drop trailing zero bytes.
    if isinstance(value, str):
        return Array(b"", None, str.__str__(value))
    if isinstance(value, bytes) or type(value).__name__ == "void":
        return Array(b"", None, bytes(value))
    item = value.item()
    if type(item) is type(value):
        # `item()` returns longdouble and the types of ml_dtypes unchanged.
        if dtype.kind not in "fV":
            raise ArrayError(
                f"a scalar of dtype {dtype} cannot be sent; convert it with `complex(…)` and send its two parts"
            )
        if hasattr(value, "__index__"):
            return Array(b"", None, int(value))
        item = float(value)
        if item != value and not isnan(item):
            raise ArrayError(f"a {dtype} has more digits than a float; send `float(…)` of it, or `str(…)`")
    return Array(b"", None, item)


def _numpy(array: Any) -> Array:
    dtype = array.dtype
    masked = sys.modules.get("numpy.ma")
    if masked is not None and isinstance(array, masked.MaskedArray):
        raise ArrayError(
            "the mask of a masked array would be lost; send `.filled(…)` with a value for masked items, or "
            "`.tolist()`, which has None for them"
        )
    if dtype.kind in "mM":
        return Array(b"", None, times.plain(array))
    name = dtype.name
    if name not in _DTYPES and name not in _EXTENDED:
        if dtype.kind in "OUST":
            return Array(b"", None, array.tolist())
        if dtype.names is not None:
            raise ArrayError(_record(dtype, "an array of records", "array"))
        raise ArrayError(f"an array of dtype {dtype} cannot be sent; convert it with `.astype(…)`")
    if dtype.byteorder == ">" or (dtype.byteorder == "=" and sys.byteorder == "big"):
        array = array.astype(dtype.newbyteorder("<"))
    if array.nbytes < _LARGE:
        return Array(_describe(name, array.shape), array.tobytes())
    elements = allocate(array.nbytes)
    sys.modules["numpy"].frombuffer(elements, "u1").view(array.dtype).reshape(array.shape)[...] = array
    return Array(_describe(name, array.shape), elements)


def _record(dtype: Any, what: str, name: str) -> str:
    fields = ", ".join(f"{field!r}: {name}[{field!r}]" for field in dtype.names[:3])
    rest = ", …" if len(dtype.names) > 3 else ""
    return f"{what} with named fields cannot be sent; send a dict: `{{{fields}{rest}}}`"


def _tensor(torch: Any, tensor: Any) -> Array:
    host = tensors.host_copy(torch, tensor)
    name = str(host.dtype).removeprefix("torch.")
    if name not in _DTYPES and name not in _EXTENDED:
        raise ArrayError(f"a tensor of dtype {host.dtype} cannot be sent; convert it with `.to(...)`")
    return Array(_describe(name, host.shape), tensors.elements(torch, host))


def _jax(value: Any) -> Array:
    import numpy

    if not value.is_fully_addressable:
        if not value.is_fully_replicated:
            raise ArrayError(
                "the array is spread over several processes, and this one has only a part; gather it with "
                "`jax.experimental.multihost_utils.process_allgather`, or return `.addressable_data(0)`"
            )
        value = value.addressable_data(0)
    try:
        return _numpy(numpy.asarray(value))
    except (TypeError, RuntimeError) as error:
        # An array without plain elements, or one that was deleted or given away.
        raise ArrayError(str(error).partition("\n")[0]) from None


def _describe(name: str, shape: Any) -> bytes:
    return _encode([name, [int(size) for size in shape]])


def _from_wire(code: int, data: memoryview, copy: bool) -> Any:
    if code != 1:
        raise ArrayError(f"unknown MessagePack extension {code}")
    # msgspec 0.19 reports a view that is longer than its memory.
    data = data[: data.nbytes]
    name, shape, start = _read_description(data)
    if name not in _DTYPES and name not in _EXTENDED:
        raise ArrayError(f"unknown dtype {name}")
    try:
        import numpy
    except ImportError:
        raise ArrayError("cannot decode an array, because NumPy is not installed: add numpy to the image") from None

    elements = data[start:]
    widen = False
    if name in _EXTENDED:
        try:
            import ml_dtypes

            dtype = numpy.dtype(getattr(ml_dtypes, name))
        except ImportError:
            if name != "bfloat16":
                raise ArrayError(f"cannot decode an array of {name}: add ml_dtypes to the image") from None
            dtype, widen = numpy.dtype("<u2"), True
    else:
        dtype = numpy.dtype(name).newbyteorder("<")
    if len(elements) != dtype.itemsize * prod(shape):
        raise ArrayError(f"an array of {name} and shape {shape} cannot have {len(elements)} bytes")
    if not len(elements):
        return numpy.empty(shape, dtype)
    flat = numpy.frombuffer(elements, dtype)
    if widen:
        # bfloat16 has the upper 16 bits of float32.
        return (flat.astype("<u4") << 16).view("<f4").reshape(shape)
    if copy or elements.readonly or not flat.flags.aligned:
        flat = flat.copy()
    return flat.reshape(shape)


def _read_description(data: memoryview) -> tuple[str, list[int], int]:
    """Parse `[dtype name, [shape…]]` by hand: the elements follow without a separator."""
    try:
        if data[0] != 0x92:
            raise ArrayError("an array's description is malformed")
        if data[1] == 0xD9:
            start, length = 3, data[2]
        else:
            start, length = 2, data[1] & 0x1F
        name = bytes(data[start : start + length]).decode("ascii")
        at = start + length
        if data[at] == 0xDC:
            rank, at = int.from_bytes(data[at + 1 : at + 3], "big"), at + 3
        elif data[at] & 0xF0 == 0x90:
            rank, at = data[at] & 0x0F, at + 1
        else:
            raise ArrayError("an array's shape is malformed")
        shape: list[int] = []
        for _ in range(rank):
            size, wide = data[at], {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}.get(data[at], 0)
            if size > 0x7F:
                if not wide:
                    raise ArrayError("an array's shape is malformed")
                size = int.from_bytes(data[at + 1 : at + 1 + wide], "big")
            shape.append(size)
            at += 1 + wide
    except (IndexError, UnicodeDecodeError):
        raise ArrayError("an array's description is incomplete") from None
    return name, shape, at
