"""The level of Python's `logging` that the image asks for."""

from __future__ import annotations

import os
from typing import Final

from .._core.complaint import complain

VARIABLE: Final = "SKYWARD_LOG_LEVEL"
_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def set_up_logging() -> None:
    """Write records from this level on to standard error, if the image asks for one.

    Without it, Python shows warnings and errors, and a payload may set up `logging` itself.
    """
    level = os.environ.get(VARIABLE)
    if not level:
        return
    import logging

    try:
        logging.basicConfig(level=level, format=_FORMAT)
    except ValueError as error:
        complain(f"{VARIABLE} is ignored: {error}")
