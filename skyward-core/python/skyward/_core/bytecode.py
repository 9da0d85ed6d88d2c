"""Keep this package's bytecode, also where the environment turns bytecode off.

Agents and workers start often, and compiling the package takes longer than the rest of their start.
The package lies in a folder of Skyward's own. This module is imported first; `restore` puts the
setting back before other code runs.

If the disk is nearly full, no bytecode is written. Some versions of Python treat a partly written
file as complete, which would break an environment that others share for good.
"""

from __future__ import annotations

import os
import sys
from typing import Final

_ROOM: Final = 64 << 20
"""Free bytes that a disk must have for bytecode to be written."""


def _has_room() -> bool:
    """Return whether the disks of the environment and of this package have room."""
    for folder in (sys.prefix, os.path.dirname(os.path.abspath(__file__))):
        try:
            disk = os.statvfs(folder)
        except OSError:
            continue
        if disk.f_bavail * disk.f_frsize < _ROOM:
            return False
    return True


_FULL = not _has_room()
_BEFORE = sys.dont_write_bytecode
sys.dont_write_bytecode = _FULL


def restore() -> None:
    """Put back the environment's setting."""
    sys.dont_write_bytecode = _BEFORE or _FULL
