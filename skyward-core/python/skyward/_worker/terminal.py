"""A worker has no terminal: what asks a person raises an error that says what to do instead."""

from __future__ import annotations

import builtins
import os
import sys
from typing import Any, NoReturn

_input = builtins.input


def explain_its_absence() -> None:
    """Replace `input` and, unless the image names another one, the debugger of `breakpoint`."""
    builtins.input = _ask
    if not os.environ.get("PYTHONBREAKPOINT"):
        sys.breakpointhook = _stop


def _ask(prompt: object = "", /) -> str:
    """Read a line, if the payload has replaced standard input.

    Raises:
        EOFError: it has not.
    """
    if sys.stdin is not sys.__stdin__:
        return _input(prompt)
    raise EOFError("input() asks on a terminal, and a worker has none: pass the value as an argument")


def _stop(*_: Any, **__: Any) -> NoReturn:
    raise RuntimeError(
        "breakpoint() needs a terminal, and a worker has none: print values, send them with sky.report, or run the "
        "function on your own host, where the same code runs outside of a pool. A debugger that listens on a port can "
        "be named in the image by the variable PYTHONBREAKPOINT"
    )
