"""The state of a worker's process that its tasks share: what a task changes in it ends with the task.

What the image, hooks around the app, and the modules of payloads do when they are loaded holds for
all tasks: a module is executed only once. Anything else is set back before the next task: variables
of the environment, the working folder, the mask of new files, and the standard streams. What takes
longer to find is that of `replaced`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from os import fchdir, getcwd, umask
from typing import Any

from . import replaced
from .descriptors import move_descriptor

_excluded: set[bytes] = set()
"""The variables that others set for each task."""
_environ: Any = os.environ
"""It keeps its variables as bytes in `_data`; to read them as text takes ten times as long."""
_variables: dict[bytes, bytes] = {}
"""The variables with which each task begins, without those that are excluded."""
_seen: dict[bytes, bytes] | None = None
"""All variables when they were last set back; None before the first task."""
_seen_alone: Mapping[str, str | None] | None = None
"""For what they were set back then."""
_mask: int = 0o022
"""The mask of new files."""
_folder: int = -1
"""A descriptor of the working folder."""
_folder_name: str | None = None
_streams: tuple[Any, Any, Any] = (None, None, None)
"""Standard input, output and error."""


def exclude(*names: str) -> None:
    """Leave these variables to others."""
    _excluded.update(map(os.fsencode, names))


def begin() -> None:
    """Before the first task, remember the state that the image and hooks have made."""
    global _variables, _seen, _mask, _streams
    _seen = _environ._data.copy()
    _variables = _own(_environ._data)
    _mask = _current_mask()
    _enter(_name_of_folder())
    _streams = sys.stdin, sys.stdout, sys.stderr
    replaced.remember(replaced.take())


@contextmanager
def given() -> Iterator[None]:
    """Let what changes in this block apply to all later tasks."""
    global _mask, _streams
    if _seen is None:
        yield
        return
    variables, mask, folder, before = _own(_environ._data), _current_mask(), _name_of_folder(), replaced.take()
    streams = sys.stdin, sys.stdout, sys.stderr
    try:
        yield
    finally:
        replaced.change(_variables, variables, _own(_environ._data))
        if mask != (now := _current_mask()):
            _mask = now
        if folder != (name := _name_of_folder()):
            _enter(name)
        if streams != (put := (sys.stdin, sys.stdout, sys.stderr)):
            _streams = put
        replaced.adopt(before)


def set_back(alone: Mapping[str, str | None] | None) -> None:
    """Before a task, set back what is set back before each one.

    Args:
        alone: for a task that sees no world, the values of a world's variables for such tasks; None
            for a gang.
    """
    global _seen, _seen_alone
    if _seen is None:
        return
    umask(_mask)
    into, out, err = _streams
    if sys.stdout is not out or sys.stderr is not err or sys.stdin is not into:
        sys.stdin, sys.stdout, sys.stderr = _streams
    if _name_of_folder() != _folder_name:
        with suppress(OSError):  # the payload has closed the descriptor, or removed the folder
            fchdir(_folder)
    raw = _environ._data
    if raw == _seen and alone is _seen_alone:
        return
    wanted = _variables
    if alone is not None:
        values = {os.fsencode(name): value for name, value in alone.items()}
        of_world = {name: os.fsencode(value) for name, value in values.items() if value is not None}
        wanted = {**{name: value for name, value in wanted.items() if name not in values}, **_own(of_world)}
    for name in [name for name in raw if name not in wanted and name not in _excluded]:
        del os.environb[name]
    for name, value in wanted.items():
        if raw.get(name) != value:
            os.environb[name] = value
    _seen, _seen_alone = raw.copy(), alone


def _own(raw: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    return {name: value for name, value in raw.items() if name not in _excluded}


def _current_mask() -> int:
    mask = umask(_mask)
    if mask != _mask:
        umask(mask)
    return mask


def _name_of_folder() -> str | None:
    try:
        return getcwd()
    except OSError:
        return None


def _enter(name: str | None) -> None:
    """Remember the working folder, also where it is renamed."""
    global _folder, _folder_name
    if _folder >= 0:
        with suppress(OSError):
            os.close(_folder)
    _folder, _folder_name = move_descriptor(os.open(".", os.O_PATH | os.O_CLOEXEC)), name
