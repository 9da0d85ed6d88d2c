"""Where the links of a folder that is copied may lead."""

from __future__ import annotations


def leads_within(target: str, depth: int) -> bool:
    """Return whether a link leads to something in the folder that is copied.

    It may lead up only at its beginning: elsewhere, it would lead up from where another link leads.

    Args:
        target: what the link contains.
        depth: how many folders are between the copied folder and the link.
    """
    parts = [part for part in target.split("/") if part not in ("", ".")]
    up = 0
    while up < len(parts) and parts[up] == "..":
        up += 1
    return not target.startswith("/") and up <= depth and ".." not in parts[up:]
