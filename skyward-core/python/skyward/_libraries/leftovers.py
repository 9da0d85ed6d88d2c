"""What a task leaves in frameworks without wanting to, taken away before the next task.

Most of a framework's state is the payload's own and stays, such as a default precision that its
module sets when it is loaded. What is removed here is set by the framework itself, and would change
what the next task does, although that task has no part in it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

from .._core import process_state
from . import generators, layouts

_KERAS: Final = "keras.src.backend.common.global_state"
"""The module with what Keras keeps for each thread."""
_NUMBERS: Final = "object_name_uids"
"""There, how many layers without a name there are of each kind."""
_RANDOM: Final = ("global_random_seed", "global_seed_generator")
"""There, the seed, and what draws from it."""
_DISTRIBUTION: Final = "distribution"
_ANEW: Final[Mapping[str, Any]] = dict.fromkeys((_NUMBERS, *_RANDOM, _DISTRIBUTION))
"""As if there was nothing of them yet."""

has_begun = False
"""Whether the first task has begun."""


def begin() -> None:
    """Before anything changes the first task's view of the world, remember how it was."""
    global has_begun
    has_begun = True
    process_state.begin()
    layouts.watch()
    generators.watch()


def clear(world: Mapping[str, str | None] | None) -> None:
    """Take away what frameworks have kept of earlier tasks.

    Args:
        world: for a task that sees no world, the values of a world's variables for such tasks; None
            for a gang.
    """
    process_state.set_back(world)
    modules = sys.modules
    layouts.lookups.clear()
    if _KERAS in modules:
        # If the numbers of its layers continued, the paths of their weights would not match the
        # patterns that matched them in the task before.
        _put({_NUMBERS: None})
    if "accelerate" in modules:
        _forget_trainings(modules.get("accelerate.state"))


class Apart:
    """Begins anew within a waiting task, for a call with which the task's worker helps.

    The call finds what it would find on another worker, and the task continues as if the call had
    run there.
    """

    def __enter__(self) -> None:
        # The call may import Keras.
        self._before: Mapping[str, Any] = _ANEW
        state = sys.modules.get(_KERAS)
        if state is not None:
            self._before = {name: state.get_global_attribute(name) for name in _ANEW}
            _put(dict.fromkeys((_NUMBERS, *_RANDOM)))

    def __exit__(self, *_: object) -> None:
        if _KERAS in sys.modules:
            _put(self._before)


def _put(values: Mapping[str, Any]) -> None:
    """Set what Keras, which is loaded, keeps for each thread; None is as if there was nothing yet."""
    state: Any = sys.modules[_KERAS]
    for name, value in values.items():
        state.set_global_attribute(name, value)


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
