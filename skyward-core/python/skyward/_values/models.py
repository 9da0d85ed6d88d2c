"""Convert pydantic models to plain values.

Unlike `model_dump`, the result keeps the item names of named tuples.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from . import forms

_SCALARS: Final = frozenset({type(None), bool, int, float, str, bytes})
_NOTHING: Final = object()


def dumped(model: Any) -> Any:
    """Return the model's `model_dump`, with named tuples restored."""
    return _renamed(model, model.model_dump(mode="python"))[0]


def _renamed(value: Any, dump: Any) -> tuple[Any, bool]:
    """Restore named tuples in a dump; return it, and whether it equals the value.

    A tuple gets its names only if its items are equal: a serialiser of the model may have reordered
    them.
    """
    if dump is value:
        return dump, True
    kind = type(dump)
    if kind in _SCALARS:
        return dump, type(value) is kind and value == dump
    if kind is dict:
        return _entries(value, dump)
    value = getattr(value, "root", value) if _is_root(value) else value
    if kind is set or kind is frozenset:
        # A named tuple is equal to a plain one, so this finds the original of each item.
        given = {item: item for item in value} if isinstance(value, set | frozenset) else {}
        pairs = [_renamed(given.get(item, _NOTHING), item) for item in dump]
    elif kind in (list, tuple, deque) and isinstance(value, list | tuple | deque) and len(value) == len(dump):
        if set(map(type, dump)) <= _SCALARS and not isinstance(value, tuple):
            return dump, list(value) == list(dump)
        pairs = [_renamed(item, plain) for item, plain in zip(value, dump, strict=True)]
    else:
        return dump, False
    items, same = [item for item, _ in pairs], all(same for _, same in pairs)
    if kind is not tuple:
        return kind(items), same
    named = type(value)
    if same and isinstance(value, tuple) and forms.record_names(named, len(items)) is not None:
        return tuple.__new__(named, items), True
    return tuple(items), same


def _entries(value: Any, dump: dict[Any, Any]) -> tuple[dict[Any, Any], bool]:
    value = getattr(value, "root", value) if _is_root(value) else value
    members = _members(value)
    pairs = {key: _renamed(members.get(key, _NOTHING), item) for key, item in dump.items()}
    return {key: item for key, (item, _) in pairs.items()}, all(same for _, same in pairs.values())


def _members(value: Any) -> dict[Any, Any]:
    """Return the value's members under the keys of its dump."""
    kind = type(value)
    if isinstance(value, dict):
        return value
    if not forms.is_model(kind):
        return {name: getattr(value, name, _NOTHING) for name in forms.field_names(kind) or ()}
    members = {**value.__dict__, **(getattr(value, "__pydantic_extra__", None) or {})}
    for name, field in kind.model_fields.items():
        if field.serialization_alias is not None and name in members:
            members[field.serialization_alias] = members[name]
    return members


def _is_root(value: Any) -> bool:
    return getattr(type(value), "__pydantic_root_model__", False) is True
