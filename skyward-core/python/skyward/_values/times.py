"""Times of NumPy and spans: convert them to the forms of `datetime`, with all of their digits."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any, Final

_DAYS: Final = frozenset({"Y", "M", "W", "D"})
"""Units in which a point in time is a date."""

_WHOLE: Final = {"W": 604_800, "D": 86_400, "h": 3600, "m": 60, "s": 1}
_PARTS: Final = {"ms": 10**3, "us": 10**6, "ns": 10**9, "ps": 10**12, "fs": 10**15, "as": 10**18}
_NARROW: Final = frozenset({"ns", "ps", "fs", "as", "generic"})
"""Units that cannot represent years outside 0 to 9999; some cannot be converted to years."""

_MICROSECOND: Final = timedelta(microseconds=1)
_MISSING: Final = -(1 << 63)
"""The representation of NaT in memory."""


class TimeError(ValueError):
    """A time cannot be sent."""


def span(value: timedelta) -> float | None:
    """Convert a span to seconds.

    Raises:
        TimeError: a float of seconds cannot hold all digits, or the span has months or years.
    """
    for name in ("years", "months"):
        if getattr(value, name, 0):
            raise TimeError(f"{name} have no fixed length in seconds; send them apart, as numbers")
    convert = getattr(value, "to_timedelta64", None)
    if callable(convert):
        # A class of pandas with nanoseconds.
        found: float | None = plain(sys.modules["numpy"].asarray(convert()))
        return found
    whole = timedelta.__floordiv__(value, _MICROSECOND)
    return _quotient(whole, 1, 10**6)


def plain(array: Any) -> Any:
    """Convert an array of `datetime64` or `timedelta64`, of any shape and unit.

    Args:
        array: NumPy array of shape `(...)`.

    Returns:
        Nested lists of the same shape, or one value for an array without dimensions. A point in
        time is RFC 3339 text, a span is a float in seconds, NaT is None.

    Raises:
        TimeError: a year does not have four digits, a float of seconds cannot hold all digits of a
            span, or a span is in months, in years, or without a unit.
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
    numbers = array.astype("i8").tolist()
    return [None if number == _MISSING else _quotient(number, whole, part) for number in numbers]


def _quotient(number: int, whole: int, part: int) -> float:
    """Return `number * whole / part` seconds, from which `number * whole` can be restored."""
    # Divide ints, because their quotient is rounded only once.
    seconds = number * whole / part
    up, down = seconds.as_integer_ratio()
    if abs(up * part - number * whole * down) * 2 >= down:
        unit = next(name for name, parts in {"s": 1, **_PARTS}.items() if parts == part)
        raise TimeError(
            f"{number * whole} {unit} have more digits than a float of seconds can hold; send whole numbers of a unit: "
            f"`x // timedelta(microseconds=1)`, `.astype('timedelta64[{unit}]').astype('int64')` of NumPy, or "
            "`.value` of pandas"
        )
    return seconds
