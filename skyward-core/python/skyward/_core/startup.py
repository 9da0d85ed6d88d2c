"""How the programs of this package are imported. They import this module first, and call `restore` next.

Agents and workers start often, so:

- This package's bytecode is kept, also where the environment turns bytecode off: compiling the
  package takes longer than the rest of a start. The package lies in a folder of Skyward's own.
- No garbage is collected, of which imports leave none. The collector never looks at what was
  imported: it lasts as long as the process.

If the disk is nearly full, no bytecode is written. Some versions of Python treat a partly written
file as complete, which would break an environment that others share for good.
"""

from __future__ import annotations

import gc
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


_COLLECTS = gc.isenabled()
gc.disable()
_FULL = not _has_room()
_BEFORE = sys.dont_write_bytecode
sys.dont_write_bytecode = _FULL


def restore() -> None:
    """Put back the settings of the environment, before other code runs."""
    sys.dont_write_bytecode = _BEFORE or _FULL
    gc.freeze()
    if _COLLECTS:
        gc.enable()
