"""Takes the values of secrets out of what this package says of exceptions. What payloads write is their own affair."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

_SHORTEST: Final = 6
"""Characters. Shorter values are also parts of words that hide nothing."""
_concealed: list[tuple[str, str]] = []
"""Values and the names of their variables, the longest first, since one value may hold another."""


def conceal(names: Iterable[str]) -> None:
    """Take out the values that these environment variables have now."""
    found = [(os.environ.get(name, ""), name) for name in names]
    _concealed[:] = sorted((pair for pair in found if len(pair[0]) >= _SHORTEST), key=lambda pair: -len(pair[0]))


def concealed(text: str) -> str:
    """The text with the names of variables in the place of their secret values."""
    for value, name in _concealed:
        text = text.replace(value, f"(secret {name})")
    return text
