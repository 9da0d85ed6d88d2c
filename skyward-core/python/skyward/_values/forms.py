"""How types are sent: their fields, their item names, and one step towards a plain value."""

from __future__ import annotations

import datetime
import os
from collections import UserDict, UserList, UserString, abc, deque
from typing import Any, Final

from . import times
from .advice import type_name

_PLAIN: Final = (
    *(str, bytes, bytearray, int, float, complex, list, tuple, dict, set, frozenset, deque),
    *(UserDict, UserList, UserString, datetime.date, datetime.time, datetime.timedelta),
)
_NOTHING: Final = object()


def field_names(kind: type) -> list[str] | None:
    """Return the field names of a dataclass or attrs class; None for other types."""
    fields = getattr(kind, "__dataclass_fields__", None)
    if fields is not None:
        # The table also has class variables and init-only variables; only fields have this marker.
        return [name for name, field in fields.items() if field._field_type.name == "_FIELD"]
    attrs = getattr(kind, "__attrs_attrs__", None)
    return None if attrs is None else [field.name for field in attrs]


def record_names(kind: type, items: int) -> list[str] | None:
    """Return the names of all items of a namedtuple or structseq; None for other types."""
    names: Any = getattr(kind, "_fields", None)
    if names is None and hasattr(kind, "n_sequence_fields"):
        names = getattr(kind, "__match_args__", None)
    if not isinstance(names, tuple) or len(names) != items or not all(type(name) is str for name in names):
        return None
    return list(names)


def lost_attributes(value: object) -> str:
    """Return the public attributes of an object of a subclass, of whose value they are no part.

    They are listed for a message, which names at most five; empty if there are none.

    Do not call this for tuples with names: like dataclasses, they are sent by their fields alone.
    """
    attributes = getattr(value, "__dict__", None) or {}
    mapping = value if isinstance(value, dict | UserDict) else {}
    own = ("data",) if isinstance(value, UserDict | UserList | UserString) else ()
    names = [name for name in attributes if type(name) is str and not name.startswith("_") and name not in own]
    lost = [name for name in names if name not in mapping or mapping[name] is not attributes[name]]
    lost += [name for name in _slots(type(value)) if hasattr(value, name)]
    return ", ".join(f".{name}" for name in lost[:5])


def _slots(kind: type) -> list[str]:
    """Return the public slots of a type; built-in types have none."""
    names = [base.__dict__.get("__slots__", ()) for base in kind.__mro__]
    flat = [name for found in names for name in ((found,) if isinstance(found, str) else found)]
    return [name for name in flat if not name.startswith("_")]


def is_plain(value: object) -> bool:
    """Return whether an object is a value by itself: a number, a text, a time, or a container."""
    return isinstance(value, _PLAIN) or _is_a(type(value), "array.array")


def lost_content(value: Any, names: list[str]) -> bool:
    """Return whether an object with fields is a value by itself, which its fields do not have.

    The entries of a dict may be its fields, as in the outputs of models of `transformers`.
    """
    if not is_plain(value):
        return False
    if isinstance(value, dict | UserDict):
        fields = {name: getattr(value, name, None) for name in names}
        return any(type(key) is not str or fields.get(key, _NOTHING) is not value[key] for key in value)
    return not hasattr(value, "__len__") or len(value) > 0


def is_model(kind: type) -> bool:
    """Return whether the type is a pydantic model."""
    return hasattr(kind, "model_dump") and (hasattr(kind, "model_fields") or hasattr(kind, "__pydantic_fields__"))


def simple(value: Any, kind: type) -> Any:
    """Convert a value one step towards a plain value, or return it unchanged."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, memoryview) and value.format not in ("B", "b", "c"):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, list | abc.Set | range | abc.ValuesView) or _is_a(kind, "collections.deque", "array.array"):
        return list(value)
    if isinstance(value, abc.Mapping):
        return dict(value)
    if kind.__name__ in ("NaTType", "NAType") and kind.__module__.startswith("pandas."):
        return None
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return _rfc3339(value.isoformat())
    if isinstance(value, datetime.timedelta):
        return times.span(value)
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if _is_a(kind, "uuid.UUID", "decimal.Decimal"):
        return str(value)
    return value


def _is_a(kind: type, *names: str) -> bool:
    """Return whether the type derives from one of these classes, which need not be loaded."""
    return any(type_name(base) in names for base in kind.__mro__)


def _rfc3339(text: str) -> str:
    return text[:-6] + "Z" if text.endswith("+00:00") else text
