"""Arrays: extension 1 of the wire's values. NumPy and the frameworks are used only where the payload loaded them."""

from __future__ import annotations

import sys
from math import prod
from typing import Any, Final, NamedTuple

import msgspec

from ._memory import allocate

_DTYPES: Final = frozenset(
    {"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"}
    | {"float16", "float32", "float64", "complex64", "complex128"}
)
_EXTENDED: Final = frozenset(
    {"bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz"}
    | {"float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"}
)
"""Types that NumPy has only with the package `ml_dtypes`; by name on the wire, like the others."""

_LARGE: Final = 1 << 20
_encode = msgspec.msgpack.Encoder().encode


class Array(NamedTuple):
    """What an array-like value becomes: elements with their description, or (`elements` None) a plain value."""

    prefix: bytes
    elements: bytes | memoryview | None
    plain: Any = None


class ArrayError(ValueError):
    """An array that cannot be converted, in either direction."""


def is_array(value: object) -> bool:
    """Whether the value is an array of any framework (scalars of NumPy are not)."""
    kind = type(value)
    return hasattr(kind, "shape") and hasattr(kind, "dtype") and not _is_numpy_scalar(value)


def to_array(value: Any) -> Array | None:
    """Convert an array, tensor or NumPy scalar; None for any other value.

    Raises:
        EncodeError: it is one, but its elements cannot be sent.
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
        return _numpy(value if isinstance(value, numpy.ndarray) else numpy.asarray(value))
    except ArrayError as error:
        from ._values import EncodeError

        raise EncodeError(str(error), value) from None


def advice(value: object) -> str:
    """What to do with a value of a known type that cannot be converted; empty when nothing is known."""
    name = type(value).__name__
    if name in ("generator", "async_generator"):
        return "a generator must be declared as a stream on the Rust side"
    if name in ("DataFrame", "Index", "MultiIndex"):
        return 'convert it first, for example with `.to_dict("list")` or `.to_numpy()`'
    if name == "complex":
        return "a complex number has no form of its own; return a list of two floats, or an array"
    if name in ("function", "builtin_function_or_method", "method", "type", "module"):
        return "code cannot be sent"
    if name == "coroutine":
        return "it was never awaited"
    return ""


def from_shared(code: int, data: memoryview) -> Any:
    """Decode extension 1 out of memory that will be overwritten."""
    return _from_wire(code, data, copy=True)


def from_owned(code: int, data: memoryview) -> Any:
    """Decode extension 1 in place: the array lies in the message's memory."""
    return _from_wire(code, data, copy=False)


def _is_numpy_scalar(value: object) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.generic)


def _scalar(value: Any) -> Array:
    item = value.item()
    if type(item) is type(value):
        # longdouble and the types of ml_dtypes come back as themselves.
        if value.dtype.kind not in "fV" or value.dtype.names is not None:
            raise ArrayError(f"a scalar of dtype {value.dtype} cannot be sent")
        item = float(value)
    return Array(b"", None, item)


def _numpy(array: Any) -> Array:
    dtype = array.dtype
    name = dtype.name
    if name not in _DTYPES and name not in _EXTENDED:
        if dtype.kind in "OUSMmT":
            return Array(b"", None, array.tolist())
        raise ArrayError(f"an array of dtype {dtype} cannot be sent; convert it with `.astype(...)`")
    if dtype.byteorder == ">" or (dtype.byteorder == "=" and sys.byteorder == "big"):
        array = array.astype(dtype.newbyteorder("<"))
    if array.nbytes < _LARGE:
        return Array(_describe(name, array.shape), array.tobytes())
    elements = allocate(array.nbytes)
    sys.modules["numpy"].frombuffer(elements, "u1").view(array.dtype).reshape(array.shape)[...] = array
    return Array(_describe(name, array.shape), elements)


def _tensor(torch: Any, tensor: Any) -> Array:
    if tensor.is_sparse or tensor.layout is not torch.strided:
        raise ArrayError("a sparse tensor cannot be sent; use `.to_dense()`")
    if tensor.is_quantized:
        raise ArrayError("a quantised tensor cannot be sent; use `.dequantize()`")
    if tensor.device.type == "meta":
        raise ArrayError("a meta tensor has no elements")
    if hasattr(tensor, "full_tensor"):
        raise ArrayError("a distributed tensor is not all here; use `.full_tensor()` on every rank")
    host = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    name = str(host.dtype).removeprefix("torch.")
    if name not in _DTYPES and name not in _EXTENDED:
        raise ArrayError(f"a tensor of dtype {host.dtype} cannot be sent; convert it with `.to(...)`")
    # Read from memory, because NumPy may be missing and knows neither bfloat16 nor float8.
    import ctypes

    size = host.numel() * host.element_size()
    return Array(_describe(name, host.shape), ctypes.string_at(host.data_ptr(), size) if size else b"")


def _jax(value: Any) -> Array:
    import numpy

    if not value.is_fully_addressable:
        if not value.is_fully_replicated:
            raise ArrayError(
                "the array is spread over several processes and not all of it is here; gather it first with "
                "`jax.experimental.multihost_utils.process_allgather`, or return `.addressable_data(0)`"
            )
        value = value.addressable_data(0)
    try:
        return _numpy(numpy.asarray(value))
    except TypeError as error:
        raise ArrayError(str(error).splitlines()[0]) from None


def _describe(name: str, shape: Any) -> bytes:
    return _encode([name, [int(size) for size in shape]])


def _from_wire(code: int, data: memoryview, copy: bool) -> Any:
    if code != 1:
        raise ArrayError(f"MessagePack extension {code} is not known")
    # msgspec 0.19 says that the view is longer than its memory.
    data = data[: data.nbytes]
    name, shape, start = _read_description(data)
    if name not in _DTYPES and name not in _EXTENDED:
        raise ArrayError(f"arrays of dtype {name} are not known")
    try:
        import numpy
    except ImportError:
        raise ArrayError("an array has arrived, but NumPy is not installed: add numpy to the image") from None

    elements = data[start:]
    widen = False
    if name in _EXTENDED:
        try:
            import ml_dtypes

            dtype = numpy.dtype(getattr(ml_dtypes, name))
        except ImportError:
            if name != "bfloat16":
                raise ArrayError(f"an array of {name} has arrived: add ml_dtypes to the image") from None
            dtype, widen = numpy.dtype("<u2"), True
    else:
        dtype = numpy.dtype(name).newbyteorder("<")
    if len(elements) != dtype.itemsize * prod(shape):
        raise ArrayError(f"an array of {name} and shape {shape} cannot have {len(elements)} bytes")
    if not len(elements):
        return numpy.empty(shape, dtype)
    flat = numpy.frombuffer(elements, dtype)
    if widen:
        # bfloat16 is the upper half of float32.
        return (flat.astype("<u4") << 16).view("<f4").reshape(shape)
    if copy or elements.readonly or not flat.flags.aligned:
        flat = flat.copy()
    return flat.reshape(shape)


def _read_description(data: memoryview) -> tuple[str, list[int], int]:
    """Read `[dtype name, [shape…]]` by hand: the elements follow it without a mark."""
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
        raise ArrayError("an array's description is cut off") from None
    return name, shape, at
