"""What a task leaves in frameworks without wanting to, taken away before the next task.

Most of a framework's state is the payload's own and stays, such as a default precision that its
module sets when it is loaded. What is removed here is set by the framework itself, and would change
what the next task does, although that task has no part in it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

from . import _layouts

_PREFIXES: Final = ("ACCELERATE_", "FSDP_", "MEGATRON_LM_", "PARALLELISM_CONFIG_", "XLA_DOWNCAST_BF16", "XLA_USE_BF16")
"""The begins of variables through which Accelerate and Transformers pass settings of one training,
such as a compiler or FSDP, from one of their parts to another.
"""

_OF_WORLDS: Final = "ACCELERATE_USE_CPU"
"""The variable among them that Accelerate only reads: it belongs to the world, as `RANK` does."""

_settings: dict[str, str | None] | None = None
"""Those variables before the first task: those of the image and of plugins. None before that."""


def begin() -> None:
    """Before anything changes the first task's view of the world, remember how it was."""
    global _settings
    if _settings is None:
        _settings = _found()
        _layouts.watch()


def clear(world: Mapping[str, str | None] | None) -> None:
    """Take away what frameworks have kept of earlier tasks.

    Args:
        world: for a task that sees no world, the values of a world's variables for such tasks; None
            for a gang.
    """
    modules = sys.modules
    _layouts.lookups.clear()
    naming = modules.get("keras.src.utils.naming")
    if naming is not None:
        # Keras numbers the layers that have no name. If the numbers continued, the paths of their
        # weights would not match the patterns that matched them in the task before.
        naming.reset_uids()
    if "accelerate" in modules:
        _restore({**(_settings or {}), **(world or {})})


def _found() -> dict[str, str | None]:
    return {name: value for name, value in os.environ.items() if _is_setting(name)}


def _is_setting(name: str) -> bool:
    return name.startswith(_PREFIXES) and name != _OF_WORLDS


def _restore(settings: Mapping[str, str | None]) -> None:
    for name in _found():
        if settings.get(name) is None:
            del os.environ[name]
    for name, value in settings.items():
        if value is not None and _is_setting(name):
            os.environ[name] = value
