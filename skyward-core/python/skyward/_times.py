"""NumPy's times: convert them to the same forms as `datetime`, whatever their unit."""

from __future__ import annotations

import sys
from typing import Any, Final

_DAYS: Final = frozenset({"Y", "M", "W", "D"})
"""Units in which a point in time is a date."""

_WHOLE: Final = {"W": 604_800, "D": 86_400, "h": 3600, "m": 60, "s": 1}
_PARTS: Final = {"ms": 10**3, "us": 10**6, "ns": 10**9, "ps": 10**12, "fs": 10**15, "as": 10**18}
_NARROW: Final = frozenset({"ns", "ps", "fs", "as", "generic"})
"""Units that cannot represent years outside 0 to 9999; some cannot be converted to years."""

_MISSING: Final = -(1 << 63)
"""The representation of NaT in memory."""


class TimeError(ValueError):
    """A time cannot be sent."""


def plain(array: Any) -> Any:
    """Convert an array of `datetime64` or `timedelta64`, of any shape and unit.

    Args:
        array: NumPy array of shape `(...)`.

    Returns:
        Nested lists of the same shape, or one value for an array without dimensions. A point in
        time is RFC 3339 text, a span is a float in seconds, NaT is None.

    Raises:
        TimeError: a year does not have four digits, or a span is in months, in years, or without a
            unit.
    """
    numpy = sys.modules["numpy"]
    # Use the machine's byte order, because NumPy formats no other.
    flat = array.ravel().astype(array.dtype.newbyteorder("="))
    found = _texts(numpy, flat) if array.dtype.kind == "M" else _seconds(numpy, flat)
    return numpy.array([*found, None], object)[:-1].reshape(array.shape).tolist()


def _texts(numpy: Any, array: Any) -> list[str | None]:
    unit, _ = numpy.datetime_data(array.dtype)
    missing = numpy.isnat(array)
    if unit not in _NARROW:
        years = array.astype("M8[Y]").astype("i8") + 1970
        strange = ((years < 0) | (years > 9999)) & ~missing
        if strange.any():
            at = int(strange.argmax())
            raise TimeError(
                f"the time at index {at} is in the year {int(years[at])}, but RFC 3339 allows only four digits; send "
                "it as a number, with `.astype('int64')`"
            )
    if unit in _DAYS:
        array = array.astype("M8[D]")
    elif unit in ("h", "m"):
        array = array.astype("M8[s]")
    texts = numpy.datetime_as_string(array).tolist() if unit != "generic" else [""] * len(array)
    return [None if gone else _shorten(text) for text, gone in zip(texts, missing.tolist(), strict=True)]


def _shorten(text: str) -> str:
    """Remove a fraction of zero, as `datetime.isoformat` does."""
    head, _, fraction = text.partition(".")
    return text if fraction.strip("0") else head


def _seconds(numpy: Any, array: Any) -> list[float | None]:
    unit, count = numpy.datetime_data(array.dtype)
    whole, part = _WHOLE.get(unit, 0) * count, _PARTS.get(unit, 1)
    if unit in _PARTS:
        whole = count
    elif not whole and not numpy.isnat(array).all():
        named = {"Y": "years have", "M": "months have"}.get(unit, "numbers without a unit have")
        raise TimeError(f"{named} no fixed length in seconds; convert them, for example with `.astype('m8[D]')`")
    # Divide ints, because their quotient is rounded only once.
    return [None if number == _MISSING else number * whole / part for number in array.astype("i8").tolist()]
