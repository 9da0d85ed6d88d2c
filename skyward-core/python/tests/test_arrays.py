"""Arrays of NumPy and the frameworks, in both directions."""

from __future__ import annotations

import importlib
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyward._values import arrays, codec, errors

from .test_values import back, packed, refused, there

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
DTYPES += ["float16", "float32", "float64", "complex64", "complex128"]


def same(left: Any, right: Any) -> None:
    assert left.dtype == right.dtype
    assert left.shape == right.shape
    assert left.tobytes() == right.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0, 3), (300, 1000)])
def test_every_dtype_and_rank(dtype: str, shape: tuple[int, ...]) -> None:
    array: Any = (np.arange(np.prod(shape, dtype=int)) % 100).reshape(shape).astype(dtype)
    same(back(packed(array)), array)
    same(back(packed({"a": [array]}), owned=True)["a"][0], array)


@given(st.lists(st.integers(0, 5), max_size=6), st.sampled_from(DTYPES))
def test_any_shape(shape: list[int], dtype: str) -> None:
    array: Any = np.ones(shape, dtype)
    same(back(packed([array]))[0], array)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12).reshape(3, 4).T,
        np.arange(12)[::-2],
        np.arange(5, dtype=">i4"),
        np.broadcast_to(np.arange(3), (2, 3)),
        np.asfortranarray(np.ones((2, 3), "f4")),
        np.arange(1 << 19, dtype=">f8").reshape(2, -1).T,
    ],
    ids=["transposed", "reversed", "big-endian", "broadcast", "fortran", "large"],
)
def test_any_layout(array: Any) -> None:
    arrived = back(packed(array))
    assert arrived.dtype == array.dtype.newbyteorder("=")
    assert np.array_equal(arrived, array)
    assert arrived.flags.c_contiguous


@pytest.mark.parametrize("owned", [True, False])
def test_arrays_that_arrive_can_be_written(owned: bool) -> None:
    array = back(packed({"a": np.zeros(4)}), owned)["a"]
    array[0] = 1
    assert array.flags.aligned


def test_a_shared_buffer_is_copied() -> None:
    buffer = bytearray(packed(np.zeros(4, "u1")))
    array = codec.decode(memoryview(buffer))
    buffer[-4:] = b"\xff\xff\xff\xff"
    assert array.tolist() == [0, 0, 0, 0]


def test_scalars_and_arrays_of_objects_become_plain() -> None:
    assert there([np.float64(1.5), np.float32(0.5), np.int8(-3), np.bool_(True), np.str_("x"), np.bytes_(b"y")]) == [
        1.5,
        0.5,
        -3,
        True,
        "x",
        b"y",
    ]
    assert there(np.array(["a", "bc"])) == ["a", "bc"]
    assert there(np.array([1, "x", None], dtype=object)) == [1, "x", None]
    assert there(np.array(["2020-01-02"], "datetime64[D]")) == ["2020-01-02"]
    assert there(np.longdouble(1.5)) == 1.5
    assert there({np.int64(3): 1}) == {3: 1}


def test_what_numpy_cannot_send_is_named() -> None:
    assert refused({"a": np.zeros(2, [("x", "i4")])}) == (".a", "numpy.ndarray")
    assert refused([np.array([1, object()], dtype=object)]) == ("[0][1]", "object")
    assert refused(np.complex64(1j)) == ("", "complex")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x92",
        b"\x93\xa4bool\x90\x01",
        b"\x92\xa4bool",
        b"\x92\xa4bool\x91\x02\x01",
        b"\x92\xa3int\x91\x01\x01",
        b"\x92\xa4bool\x91\xcf\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x92\xa4bool\x91\xd0\xff",
        b"\x92\xa6object\x91\x01" + bytes(8),
    ],
)
def test_malformed_arrays_are_refused(data: bytes) -> None:
    with pytest.raises(arrays.ArrayError):
        back(msgspec.msgpack.encode(msgspec.msgpack.Ext(1, data)))


@given(st.binary(max_size=40))
def test_no_description_breaks_the_reader(data: bytes) -> None:
    try:
        arrays.from_shared(1, memoryview(data))
    except arrays.ArrayError:
        pass


def test_unknown_extensions_are_refused() -> None:
    with pytest.raises(arrays.ArrayError, match="extension 9"):
        back(msgspec.msgpack.encode(msgspec.msgpack.Ext(9, b"")))


@pytest.mark.frameworks
def test_bfloat16_and_float8() -> None:
    ml_dtypes = importlib.import_module("ml_dtypes")
    array = np.array([1.0, -2.5, 3.0], ml_dtypes.bfloat16)
    same(back(packed(array)), array)
    same(back(packed(array.astype(ml_dtypes.float8_e4m3fn))), array.astype(ml_dtypes.float8_e4m3fn))
    assert there(array[0]) == 1.0


def test_bfloat16_without_its_package_is_widened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ml_dtypes", None)
    array = back(msgspec.msgpack.encode(msgspec.msgpack.Ext(1, b"\x92\xa8bfloat16\x91\x02\x80?\x00\xc0")))
    assert (array.dtype, array.tolist()) == (np.dtype("float32"), [1.0, -2.0])


@pytest.mark.frameworks
def test_torch_tensors() -> None:
    torch = importlib.import_module("torch")
    same(back(packed(torch.arange(6).reshape(2, 3).T)), np.arange(6).reshape(2, 3).T.copy())
    same(back(packed(torch.ones(2, requires_grad=True) * 2)), np.full(2, 2, "f4"))
    assert back(packed(torch.tensor(3.5))).shape == ()
    assert packed(torch.tensor([1.0, 2.0], dtype=torch.bfloat16))[-4:] == b"\x80?\x00@"
    assert refused([torch.ones(2).to_sparse()])[0] == "[0]"


@pytest.mark.frameworks
def test_jax_arrays() -> None:
    jax = importlib.import_module("jax")
    same(back(packed(jax.numpy.arange(4, dtype="float32"))), np.arange(4, dtype="f4"))
    assert packed(jax.numpy.ones(1, "bfloat16"))[-2:] == b"\x80?"
    assert refused([jax.random.key(0)])[0] == "[0]"


def test_an_array_spread_over_processes_is_refused() -> None:
    class Spread:
        """Looks like a jax.Array of which only one part is in this process."""

        is_fully_addressable = False
        is_fully_replicated = False
        dtype = np.dtype("f4")
        shape = (4,)

    with pytest.raises(errors.EncodeError, match="several processes"):
        codec.encode({"a": Spread()})
