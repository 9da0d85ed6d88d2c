"""Keeps the compiled form of this package, whatever the environment says about bytecode in general.

Agent and workers start often, and compiling them anew takes longer than all the rest of their start. The folder that
the package lies in is Skyward's own. Imported first; `restore` gives the setting back before anybody else's code runs.

Where the disk is nearly full, nothing is compiled for later: some versions of Python take a file for written of which
the disk took only the beginning, and then the environment, which others share, is broken for good.
"""

from __future__ import annotations

import os
import sys
from typing import Final

_ROOM: Final = 64 << 20
"""Bytes that are free where bytecode is written."""


def _has_room() -> bool:
    """Whether the disks of the environment and of this package have room."""
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
    """Let the environment's setting hold again."""
    sys.dont_write_bytecode = _BEFORE or _FULL
