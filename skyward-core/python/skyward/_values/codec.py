"""Convert Python values to and from MessagePack.

The rules are in `docs/protocol.md`, section "Values". A value is first reduced to types that
MessagePack knows (`_Reduction.plain`), because an encoder alone would accept values that Rust
cannot read, such as keys of any type, and timestamps.
"""

from __future__ import annotations

from collections.abc import Sized
from datetime import date, time
from enum import Enum
from typing import Any, Final

import msgspec
from msgspec.msgpack import Ext

from .._core.memory import to_bytes
from . import arrays, forms, models, pieces
from .advice import advice
from .errors import EncodeError
from .pieces import LARGE, Blob
from .times import TimeError

_MAPS: Final = frozenset({0xDE, 0xDF})
"""The first bytes of maps with a count of 16 or 32 bits."""
_RECORD: Final = 2
"""The extension at the start of a list whose items have names; it holds the array of names."""

Buffer = pieces.Buffer

_DEEPEST: Final = 128
"""The most levels of lists and dicts in a value, as in Rust."""
_SCALARS: Final = frozenset({type(None), bool, int, float, str, bytes})
_KEYS: Final = frozenset({str, int})
_encode = msgspec.msgpack.Encoder().encode


class _Reduction:
    """One conversion. It records whether a `Blob` occurred; the result is then sent in pieces.

    It caches the names of tuple classes, because a table may have one named tuple per row.
    """

    __slots__ = ("blobs", "depth", "heads")

    def __init__(self) -> None:
        self.blobs = False
        self.depth = 0
        self.heads: dict[type, tuple[list[str], Ext]] = {}

    def plain(self, value: Any) -> Any:
        """Reduce a value to None, bool, int, float, str, bytes, list, dict, `Ext` and `Blob`."""
        kind = type(value)
        if kind in _SCALARS:
            if kind is bytes and len(value) >= LARGE:
                self.blobs = True
                return Blob(b"\xc6" + len(value).to_bytes(4, "big"), value)
            return value
        if kind is list or kind is tuple:
            return self._sequence(value)
        if kind is dict:
            return self._mapping(value)
        head = self.heads.get(kind)
        if head is not None and len(head[0]) == len(value):
            return self._record(*head, value)
        return self._other(value, kind)

    def _sequence(self, value: Any) -> Any:
        if self.depth == _DEEPEST:
            raise _too_deep(value)
        kinds = set(map(type, value))
        if kinds <= _SCALARS and (bytes not in kinds or sum(map(len, filter(_is_bytes, value))) < LARGE):
            return value
        out: list[Any] = []
        add, plain = out.append, self.plain
        self.depth += 1
        try:
            for item in value:
                add(plain(item))
        except EncodeError as error:
            raise error.under(f"[{len(out)}]") from None
        self.depth -= 1
        return out

    def _mapping(self, value: dict[Any, Any]) -> Any:
        if self.depth == _DEEPEST:
            raise _too_deep(value)
        if set(map(type, value)) <= _KEYS:
            if set(map(type, value.values())) <= _SCALARS and bytes not in map(type, value.values()):
                return value
            keys: Any = value
        else:
            keys = _keys(value)
        out: dict[Any, Any] = {}
        key: Any = None
        self.depth += 1
        try:
            for key, item in zip(keys, value.values(), strict=True):
                out[key] = self.plain(item)
        except EncodeError as error:
            raise error.under(_segment(key)) from None
        self.depth -= 1
        return out

    def _fields(self, names: Any, value: Any) -> dict[str, Any]:
        if self.depth == _DEEPEST:
            raise _too_deep(value)
        out: dict[str, Any] = {}
        self.depth += 1
        for name in names:
            try:
                item = getattr(value, name)
            except AttributeError:
                raise EncodeError("the field was never set", value, f".{name}") from None
            try:
                out[name] = self.plain(item)
            except EncodeError as error:
                raise error.under(f".{name}") from None
        self.depth -= 1
        return out

    def _record(self, names: list[str], head: Ext, value: Any) -> list[Any]:
        """Convert a named tuple to a list that begins with its names.

        It can be read by name and by position.
        """
        if self.depth == _DEEPEST:
            raise _too_deep(value)
        kinds = set(map(type, value))
        if kinds <= _SCALARS and bytes not in kinds:
            return [head, *value]
        out: list[Any] = [head]
        self.depth += 1
        for name, item in zip(names, value, strict=True):
            try:
                out.append(self.plain(item))
            except EncodeError as error:
                raise error.under(f".{name}") from None
        self.depth -= 1
        return out

    def _other(self, value: Any, kind: type) -> Any:
        if isinstance(value, Enum):
            return self.plain(value.value)
        names = forms.field_names(kind)
        if names is not None:
            if forms.lost_content(value, names):
                reason = "only its fields would be sent, and its own content would be lost; send a dict of both"
                raise EncodeError(reason, value)
            return self._fields(names, value)
        if issubclass(kind, msgspec.Struct):
            return self._struct(value, kind)
        if forms.is_model(kind):
            return self.plain(models.dumped(value))
        if isinstance(value, tuple):
            names = forms.record_names(kind, len(value))
            if names is not None:
                head = self.heads[kind] = names, Ext(_RECORD, _encode(names))
                return self._record(*head, value)
        if forms.is_plain(value) and (lost := forms.lost_attributes(value)):
            what = "items" if isinstance(value, Sized) else "value"
            reason = f"only its {what} would be sent, and {lost} would be lost; send a dict or a dataclass of both"
            raise EncodeError(reason, value)
        if isinstance(value, tuple):
            return self._sequence(tuple(value))
        array = arrays.to_array(value)
        if array is not None:
            return self._array(value, array)
        try:
            simple = forms.simple(value, kind)
        except TimeError as error:
            raise EncodeError(str(error), value) from None
        if simple is not value:
            return self.plain(simple)
        reason = (
            advice(value) or "values of this type cannot be converted; send a dict or a dataclass of what is needed"
        )
        raise EncodeError(reason, value)

    def _struct(self, value: msgspec.Struct, kind: type[msgspec.Struct]) -> dict[str, Any]:
        """Convert a msgspec struct, with the names and the tag of msgspec's own encoder."""
        fields = self._fields(kind.__struct_fields__, value)
        out: dict[str, Any] = {}
        config = kind.__struct_config__
        if config.tag is not None:
            out[str(config.tag_field)] = config.tag
        out.update(zip(kind.__struct_encode_fields__, fields.values(), strict=True))
        return out

    def _array(self, value: Any, array: arrays.Array) -> Any:
        if array.elements is None:
            return self.plain(array.plain)
        prefix = array.prefix
        size = len(prefix) + len(array.elements)
        if size >= 1 << 32:
            raise EncodeError("an array of 4 GiB or more does not fit into a message", value)
        if size < LARGE:
            return Ext(1, prefix + bytes(array.elements))
        self.blobs = True
        return Blob(b"\xc9" + size.to_bytes(4, "big") + b"\x01" + prefix, array.elements)


def encode(value: Any) -> list[Buffer]:
    """Encode a value as MessagePack, in pieces to be sent one after another.

    Raises:
        EncodeError: some part of the value cannot be converted.
    """
    if value is None:
        return [b"\xc0"]
    try:
        reduction = _Reduction()
        plain = reduction.plain(value)
        if not reduction.blobs:
            return [_encode(plain)]
        parts: list[Buffer] = []
        pieces.write(plain, parts)
        return pieces.compact(parts)
    except (OverflowError, UnicodeEncodeError):
        raise _locate(value) from None
    except RecursionError:
        raise _too_deep(value) from None


def decode(packed: memoryview) -> Any:
    """Decode a value; arrays are copied into memory of their own."""
    return _decode_shared(packed)


def decode_owned(packed: memoryview) -> Any:
    """Decode a value from memory that the caller gives up; arrays use that memory."""
    if not packed or (packed[0] & 0xF0 != 0x80 and packed[0] not in _MAPS):
        return _decode_owned(packed)
    return {name: _member(memoryview(raw)) for name, raw in _decode_members(packed).items()}


def _member(packed: memoryview) -> Any:
    return to_bytes(packed[5:]) if packed[0] == 0xC6 else _decode_owned(packed)


def _too_deep(value: object) -> EncodeError:
    reason = f"it is nested more than {_DEEPEST} levels deep, or contains itself; send a flatter value"
    return EncodeError(reason, value)


def _is_bytes(value: object) -> bool:
    return type(value) is bytes


def _keys(value: dict[Any, Any]) -> list[str | int]:
    """Convert all keys, and check that none of them become equal."""
    keys = [_key(key) for key in value]
    if len(set(keys)) < len(keys):
        seen: dict[str | int, Any] = {}
        for key, given in zip(keys, value, strict=True):
            if key in seen:
                reason = (
                    f"the keys {_shorten(repr(seen[key]))} and {_shorten(repr(given))} both become {key!r}, so one "
                    "of the two entries would be lost; give one of them another key"
                )
                raise EncodeError(reason, given, "{" + _shorten(repr(given)) + "}")
            seen[key] = given
    return keys


def _key(key: Any) -> str | int:
    if isinstance(key, Enum):
        key = key.value
    if type(key) in _KEYS:
        return key  # type: ignore[no-any-return]
    if isinstance(key, str):
        return str.__str__(key)
    if hasattr(type(key), "__index__") and not _is_truth(key) and not arrays.is_array(key):
        return int(key)
    text = "with `.isoformat()`" if isinstance(key, date | time) else "with `str(…)`"
    reason = f"a dict key must be str or int; send a list of pairs, or convert the key to text {text}"
    raise EncodeError(reason, key, "{" + _shorten(repr(key)) + "}")


def _is_truth(key: object) -> bool:
    """Return whether a key is a bool of Python or NumPy."""
    return isinstance(key, bool) or type(key).__name__ in ("bool", "bool_")


def _segment(key: Any) -> str:
    if isinstance(key, str):
        return f".{key}" if len(key) <= 60 and key.isidentifier() else f"[{_shorten(repr(key))}]"
    return f"[{key!r}]"


def _shorten(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def _locate(value: Any, path: str = "") -> EncodeError:
    """Find the scalar that the encoder refused: too large an int, or text that is not Unicode."""
    found = _scan(_Reduction().plain(value), path)
    return found or EncodeError("it cannot be encoded", value, path)


def _scan(plain: Any, path: str) -> EncodeError | None:
    if type(plain) is int and not -(1 << 63) <= plain < 1 << 64:
        return EncodeError("the int does not fit into 64 bits; send it as text or as a float", plain, path)
    if type(plain) is str:
        try:
            plain.encode()
        except UnicodeEncodeError:
            return EncodeError("the text contains a lone surrogate, which is not valid Unicode", plain, path)
    if type(plain) in (list, tuple):
        segments = (f"[{index}]" for index in range(len(plain)))
        if plain and type(plain[0]) is Ext and plain[0].code == _RECORD:
            segments = (f".{name}" for name in ["", *msgspec.msgpack.decode(plain[0].data)])
        for segment, item in zip(segments, plain, strict=True):
            if found := _scan(item, path + segment):
                return found
    if type(plain) is dict:
        for key, item in plain.items():
            if found := _scan(key, f"{path}{{{_shorten(repr(key))}}}") or _scan(item, path + _segment(key)):
                return found
    return None


_decode_members = msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode
_decode_owned = msgspec.msgpack.Decoder(ext_hook=arrays.from_owned).decode
_decode_shared = msgspec.msgpack.Decoder(ext_hook=arrays.from_shared).decode
