"""Variables through which frameworks pass the settings of one training from one part to another.

A framework sets them by itself, and they would apply to the next task too. So each task begins with
those of the image, of plugins, and of the payload's modules.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

_PREFIXES: Final = ("ACCELERATE_", "FSDP_", "MEGATRON_LM_", "PARALLELISM_CONFIG_", "XLA_DOWNCAST_BF16", "XLA_USE_BF16")
"""The begins of variables through which Accelerate and Transformers pass such settings, as for a
compiler or FSDP.
"""

_OF_WORLDS: Final = "ACCELERATE_USE_CPU"
"""The variable among them that Accelerate only reads: it belongs to the world, as `RANK` does."""

_given: dict[str, str] | None = None
"""The variables with which each task begins; None before the first task."""


def begin() -> None:
    """Before the first task, remember the variables of the image and of plugins."""
    global _given
    _given = _found()


@contextmanager
def given() -> Iterator[None]:
    """Let what changes in this block apply to all later tasks: a module is executed only once."""
    before = _found()
    try:
        yield
    finally:
        if _given is not None:
            after = _found()
            for name in {*before, *after}:
                if after.get(name) == before.get(name):
                    continue
                if name in after:
                    _given[name] = after[name]
                else:
                    _given.pop(name, None)


def restore(world: Mapping[str, str | None] | None) -> None:
    """Restore the variables before a task.

    Args:
        world: for a task that sees no world, the values of a world's variables for such tasks; None
            for a gang.
    """
    wanted = {**(_given or {}), **(world or {})}
    for name in _found():
        if wanted.get(name) is None:
            del os.environ[name]
    for name, value in wanted.items():
        if value is not None and _is_setting(name):
            os.environ[name] = value


def _found() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if _is_setting(name)}


def _is_setting(name: str) -> bool:
    return name.startswith(_PREFIXES) and name != _OF_WORLDS
