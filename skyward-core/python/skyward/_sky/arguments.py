"""Checks of what payloads pass to functions that talk to the client."""

from __future__ import annotations

from math import inf
from typing import Any

from .._core import plain_names
from .._values.advice import type_name


def checked_name(what: str, value: Any) -> str:
    """Return a name.

    Args:
        what: what it is the name of, for messages.
        value: the name.

    Raises:
        TypeError: it is no text.
        ValueError: it is empty, too long, or has other characters than names have.
    """
    if not isinstance(value, str):
        raise TypeError(f"the name of {what} must be a str, not {an_object(value)}")
    if not plain_names.is_plain(value):
        raise ValueError(f"{value[:200]!r} cannot be the name of {what}: a name has {plain_names.FORM}")
    return str.__str__(value)


def checked_seconds(what: str, value: Any) -> float:
    """Return a number of seconds.

    Raises:
        TypeError: it is no number.
        ValueError: it is not above 0.
    """
    try:
        seconds = float(value) if not isinstance(value, str | bytes | bytearray) else None
    except TypeError:
        seconds = None
    if seconds is None:
        raise TypeError(f"{what} must be a number of seconds, not {an_object(value)}")
    if not 0 < seconds < inf:
        raise ValueError(f"{what}={value}: it must be more than 0 seconds, and finite")
    return seconds


def an_object(value: object) -> str:
    """Return what a value is, for a message."""
    return f"an object of type {type_name(type(value))}"
