"""Remove the values of secrets from what this package reports of exceptions.

The output of payloads is left as it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

_SHORTEST: Final = 6
"""The fewest characters of a value that is concealed. Shorter ones also occur as parts of ordinary
words.
"""
_concealed: list[tuple[str, str]] = []
"""Values with the names of their variables; the longest first, because one value may contain
another.
"""


def conceal(names: Iterable[str]) -> None:
    """Conceal the current values of these environment variables."""
    found = [(os.environ.get(name, ""), name) for name in names]
    _concealed[:] = sorted((pair for pair in found if len(pair[0]) >= _SHORTEST), key=lambda pair: -len(pair[0]))


def concealed(text: str) -> str:
    """Return the text with each secret value replaced by the name of its variable."""
    for value, name in _concealed:
        text = text.replace(value, f"(secret {name})")
    return text
