"""How types are sent: their fields, their item names, and one step towards a plain value."""

from __future__ import annotations

import datetime
import os
from collections import abc
from typing import Any

from ._advice import type_name


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


def lost_attributes(value: object) -> list[str]:
    """Return the public attributes of a container's subclass; only the items are sent.

    Do not call this for tuples with names: like dataclasses, they are sent by their fields alone.
    """
    attributes = getattr(value, "__dict__", None)
    if not attributes or not isinstance(value, list | tuple | dict | set | frozenset):
        return []
    mapping = value if isinstance(value, dict) else ()
    return [name for name in attributes if not name.startswith("_") and name not in mapping]


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
        return value.total_seconds()
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
