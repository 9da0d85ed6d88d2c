"""Keeps the compiled form of this package, whatever the environment says about bytecode in general.

Agent and workers start often, and compiling them anew takes longer than all the rest of their start. The folder that
the package lies in is Skyward's own. Imported first; `restore` gives the setting back before anybody else's code runs.
"""

from __future__ import annotations

import sys

_BEFORE = sys.dont_write_bytecode
sys.dont_write_bytecode = False


def restore() -> None:
    """Let the environment's setting hold again."""
    sys.dont_write_bytecode = _BEFORE
