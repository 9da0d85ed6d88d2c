"""Names that users and clients give to what lies in folders: of checkpoints, of commits, of data sets."""

from __future__ import annotations

import re
from typing import Final

FORM: Final = '1 to 100 of the characters A-Z, a-z, 0-9, ".", "_" and "-", and no "." at the beginning'
"""What a name has, for messages."""
_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")


def is_plain(name: str) -> bool:
    """Return whether this can be such a name. It is also the name of a file that is not hidden."""
    return _NAME.fullmatch(name) is not None
