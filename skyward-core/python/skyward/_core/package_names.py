"""Names of the packages of payloads: `payload_` and the digest of the payload."""

from __future__ import annotations

from typing import Final

PREFIX: Final = "payload_"
_DIGITS: Final = frozenset("0123456789abcdef")
_LEAST_DIGITS: Final = 16
DIGEST: Final = f"[0-9a-f]{{{_LEAST_DIGITS},}}"
"""What matches a digest, as a regular expression."""


def is_root(name: str) -> bool:
    """Return whether a name is that of a payload's package."""
    digest = name.removeprefix(PREFIX)
    return len(digest) < len(name) and is_digest(digest)


def is_digest(text: str) -> bool:
    """Return whether a text can be the digest of a payload."""
    return len(text) >= _LEAST_DIGITS and _DIGITS.issuperset(text)
