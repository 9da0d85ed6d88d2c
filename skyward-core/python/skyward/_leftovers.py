"""What a task leaves in frameworks without wanting to, taken away before the next task.

Most of a framework's state is the payload's own and stays, such as a default precision that its
module sets when it is loaded. What is removed here is set by the framework itself, and would change
what the next task does, although that task has no part in it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

from . import _layouts, _settings

_has_begun = False
"""Whether the first task has begun."""


def begin() -> None:
    """Before anything changes the first task's view of the world, remember how it was."""
    global _has_begun
    if not _has_begun:
        _has_begun = True
        _settings.begin()
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
        _settings.restore(world)
        _forget_trainings(modules.get("accelerate.state"))


def _forget_trainings(module: Any) -> None:
    """Take away the state of Accelerate's trainings if no object of one is left.

    The next `Accelerator` would continue with the precision, and with an accumulation of gradients
    that has not come to its end, which keeps its optimizer from any step.
    """
    for name in ("AcceleratorState", "GradientState"):
        kind = getattr(module, name, None)
        # Each object has the dict of its class as its own.
        if kind is not None and _holders(kind) <= _NO_HOLDER:
            kind._shared_state.clear()


def _holders(kind: Any) -> int:
    return sys.getrefcount(kind._shared_state)


class _Unused:
    _shared_state: Final[dict[str, Any]] = {}


_NO_HOLDER: Final = _holders(_Unused)
"""What `_holders` returns for a class without objects; it depends on Python's version."""
