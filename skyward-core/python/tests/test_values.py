"""Values: round trips, conversions, and the paths of values that cannot be converted."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import functools
import math
import pathlib
import re
import types
import uuid
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyward._values import codec
from skyward._values.errors import EncodeError


def packed(value: Any) -> bytes:
    return b"".join(bytes(part) for part in codec.encode(value))


def there(value: Any) -> Any:
    """Return what the client's MessagePack decoder sees, with named tuples as dicts."""

    def named(plain: Any) -> Any:
        if isinstance(plain, dict):
            return {key: named(item) for key, item in plain.items()}
        if not isinstance(plain, list):
            return plain
        if plain and isinstance(plain[0], msgspec.msgpack.Ext) and plain[0].code == 2:
            names = msgspec.msgpack.decode(plain[0].data)
            return {name: named(item) for name, item in zip(names, plain[1:], strict=True)}
        return [named(item) for item in plain]

    return named(msgspec.msgpack.decode(packed(value)))


def refused(value: Any, words: str = "") -> tuple[str, str]:
    with pytest.raises(EncodeError) as caught:
        codec.encode(value)
    assert caught.value.reason
    assert words in caught.value.reason
    return caught.value.path, caught.value.value_type


def back(data: bytes, owned: bool = False) -> Any:
    view = memoryview(bytearray(data))
    return codec.decode_owned(view) if owned else codec.decode(view)


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary()
)
plain = st.recursive(
    scalars,
    lambda inner: st.lists(inner) | st.dictionaries(st.text("abc é") | st.integers(-(1 << 63), (1 << 63) - 1), inner),
    max_leaves=20,
)


@given(plain)
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    assert there(value) == value
    assert back(packed(value)) == value
    assert back(packed({"value": value}), owned=True) == {"value": value}


@given(plain, st.integers(0, 255))
def test_large_bytes_anywhere_do_not_change_the_form(value: Any, byte: int) -> None:
    large = bytes([byte]) * (1 << 16)
    tree = {"a": [value, large, {"b": large}], "c": value}
    assert packed(tree) == msgspec.msgpack.encode(tree)


def test_large_bytes_are_not_copied() -> None:
    large = bytes(1 << 20)
    assert any(part is large for part in codec.encode({"x": [1, large]}))


@dataclasses.dataclass
class Point:
    x: Any
    y: Any = None


@dataclasses.dataclass(frozen=True, slots=True)
class Slots:
    x: Any
    total: dataclasses.InitVar[int] = 0


class Colour(enum.Enum):
    RED = "red"
    PAIR = (1, 2)


class Level(enum.IntEnum):
    LOW = 1


class Struct(msgspec.Struct):
    a: Any


Pair = collections.namedtuple("Pair", "a b")


class Whole(int):
    pass


class Words(str):
    pass


UTC = datetime.timezone.utc


def label(value: object) -> str:
    """A name without addresses, so that all processes of pytest have the same tests."""
    return re.sub(r" at 0x\w+", "", repr(value))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ((1, (2,)), [1, [2]]),
        ({3}, [3]),
        (frozenset([3]), [3]),
        (range(3), [0, 1, 2]),
        (collections.deque([1]), [1]),
        ({"a": 1}.keys(), ["a"]),
        ({"a": 1}.values(), [1]),
        (Pair(1, 2), {"a": 1, "b": 2}),
        (collections.OrderedDict(a=1), {"a": 1}),
        (collections.Counter("aab"), {"a": 2, "b": 1}),
        (types.MappingProxyType({"a": 1}), {"a": 1}),
        (bytearray(b"ab"), b"ab"),
        (memoryview(b"abcd")[::2], b"ac"),
        (Point(1, Point(2)), {"x": 1, "y": {"x": 2, "y": None}}),
        (Slots(1), {"x": 1}),
        (Struct(Colour.RED), {"a": "red"}),
        (Colour.PAIR, [1, 2]),
        (Level.LOW, 1),
        ({Colour.RED: 1, Level.LOW: 2, Whole(5): 3, Words("w"): 4}, {"red": 1, 1: 2, 5: 3, "w": 4}),
        (Whole(5), 5),
        (Words("w"), "w"),
        (datetime.datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC), "2020-01-02T03:04:05Z"),
        (datetime.datetime(2020, 1, 2), "2020-01-02T00:00:00"),
        (datetime.date(2020, 1, 2), "2020-01-02"),
        (datetime.time(1, 2, 3), "01:02:03"),
        (datetime.timedelta(minutes=1, milliseconds=500), 60.5),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (pathlib.Path("/a/b"), "/a/b"),
        (decimal.Decimal("1.50"), "1.50"),
        (float("inf"), math.inf),
    ],
    ids=label,
)
def test_types_of_the_standard_library(value: Any, expected: Any) -> None:
    assert there(value) == expected
    assert there({"in": [value]}) == {"in": [expected]}


def test_nan_stays_nan() -> None:
    assert math.isnan(there([math.nan])[0])


class Opaque:
    pass


@pytest.mark.parametrize(
    ("value", "path", "kind"),
    [
        (Opaque(), "", "tests.test_values.Opaque"),
        ({"loss": [1, 2, 3, Point(Opaque())]}, ".loss[3].x", "tests.test_values.Opaque"),
        ([[1 << 64]], "[0][0]", "int"),
        ({"a": -(1 << 63) - 1}, ".a", "int"),
        ({"a b": {7: "\ud800"}}, "['a b'][7]", "str"),
        ({"a": {1.5: 1}}, ".a{1.5}", "float"),
        ({(1, 2): 1}, "{(1, 2)}", "tuple"),
        ({True: 1}, "{True}", "bool"),
        ({None: 1}, "{None}", "NoneType"),
        ({1 << 70: 1}, "{1180591620717411303424}", "int"),
        ([1j], "[0]", "complex"),
        ((i for i in range(1)), "", "generator"),
        ({"f": len}, ".f", "builtin_function_or_method"),
        ([Opaque], "[0]", "type"),
        ({"a": bytes(1 << 16), "b": [1 << 64]}, ".b[0]", "int"),
    ],
    ids=label,
)
def test_what_cannot_be_converted_is_named(value: Any, path: str, kind: str) -> None:
    assert refused(value) == (path, kind)


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    path, kind = refused({"a": value}, "contains itself")
    assert (path, kind) == (".a" + "[0]" * 7 + "…" + "[0]" * 8, "list")


def test_a_value_is_as_deep_as_rust_reads_it() -> None:
    def nested(levels: int, last: Any, wrap: Callable[[Any], Any]) -> Any:
        return functools.reduce(lambda inner, _: wrap(inner), range(levels), last)

    wraps: list[Callable[[Any], Any]] = [lambda x: [x], lambda x: (x,), lambda x: {"k" * 99: x}, Point, Struct]
    wraps += [lambda x: Pair(1, x), lambda x: collections.deque([x])]
    for wrap in wraps:
        assert packed(nested(128, 1, wrap))
        last: Any
        for last in (1, "text", bytes(1 << 16), [], {}):
            path, _ = refused([nested(128, last, wrap)], "more than 128 levels")
            assert len(path) < 20 * 70
    # Neighbours do not add to the depth.
    assert packed([nested(100, 1, wrap) for wrap in wraps] * 3)


def test_pydantic_models_are_maps_of_their_fields() -> None:
    import pydantic

    model = pydantic.create_model("Model", when=(datetime.date, ...), inner=(dict[str, Any], ...))
    assert there([model(when=datetime.date(2020, 1, 2), inner={"p": pathlib.Path("x")})]) == [
        {"when": "2020-01-02", "inner": {"p": "x"}}
    ]


def test_a_field_that_was_never_set_is_named() -> None:
    value = Point(1)
    del value.x
    assert refused([value]) == ("[0].x", "tests.test_values.Point")


@pytest.mark.parametrize("start", [b"\x82", b"\xde\x00\x02", b"\xdf\x00\x00\x00\x02"])
def test_large_bytes_are_copied_into_huge_pages_whatever_the_form_of_the_map(
    start: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = []

    def to_bytes(data: memoryview) -> bytes:
        copied.append(len(data))
        return bytes(data)

    monkeypatch.setattr(codec, "to_bytes", to_bytes)
    data = b"\x07" * (1 << 20)
    arrived = back(start + packed({"a": 1, "b": data})[1:], owned=True)
    assert arrived == {"a": 1, "b": data}
    assert copied == [len(data)]
