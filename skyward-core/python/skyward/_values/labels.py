"""What an array-like value has beside its elements, and what would be lost without it."""

from __future__ import annotations

from typing import Any

from . import forms


def lost(value: Any, kind: type) -> str:
    """Return why the elements alone are not the whole value; empty if they are.

    Args:
        value: an array-like value: an array of NumPy or of a subclass, a column of pandas, an array
            of `xarray`.
        kind: its type.
    """
    # The unit of a column of pandas is the precision of its times.
    is_column = kind.__module__.partition(".")[0] == "pandas"
    measured = _is_set(value, "units") or (_is_set(value, "unit") and not is_column)
    if measured or _is_set(getattr(value, "dtype", None), "units"):
        return "the array's unit would be lost; send its numbers, in the unit that Rust expects"
    if hasattr(kind, "coords") or hasattr(kind, "dims"):
        return _labelled(value)
    if _is_set(value, "attrs"):
        names = ", ".join(map(str, list(value.attrs)[:5]))
        return f"its attributes would be lost ({names}); send a dict of its values and of `.attrs`"
    if hasattr(kind, "iloc") and not _is_counted(value.index):
        return (
            "its index would be lost; send `.to_dict()` or `list(data.items())`, which have it, or `.to_numpy()` or "
            "`.reset_index(drop=True)`, which are without it"
        )
    # A subclass of NumPy's array; the attributes of a mapped file, which has `flush`, only describe the
    # file.
    may_lose = hasattr(kind, "__array_finalize__") and not hasattr(kind, "flush")
    if may_lose and (found := forms.lost_attributes(value)):
        return f"only its elements would be sent, and {found} would be lost; send a dict of both"
    return ""


def _labelled(value: Any) -> str:
    """Return what an array of `xarray` would lose: coordinates, attributes, names of dimensions."""
    coords = [str(name) for name in getattr(value, "coords", ())]
    attrs = [str(name) for name in getattr(value, "attrs", ())]
    dims = [str(name) for at, name in enumerate(getattr(value, "dims", ())) if name != f"dim_{at}"]
    named = [("coordinates", coords), ("attributes", attrs), ("names of dimensions", dims)]
    found = [f"its {what} ({', '.join(names[:5])})" for what, names in named if names]
    if not found:
        return ""
    return f'{" and ".join(found)} would be lost; send `.to_dict(data="list")`, which has them, or `.values`'


def _is_set(value: Any, name: str) -> bool:
    """Return whether an attribute exists and says something: an empty dict of attributes does not."""
    found = getattr(value, name, None)
    return found is not None and not callable(found) and not (hasattr(found, "__len__") and not len(found))


def _is_counted(index: Any) -> bool:
    """Return whether an index of pandas only counts the rows from 0."""
    return getattr(index, "start", None) == 0 and getattr(index, "step", None) == 1
