"""Names that a module does not have."""

from __future__ import annotations


def unknown(module: str, name: str, known: list[str]) -> str:
    """Describe an unknown name of a module, with the closest known name."""
    from difflib import get_close_matches

    close = get_close_matches(name, known, 1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"module {module!r} has no attribute {name!r}{hint}"
