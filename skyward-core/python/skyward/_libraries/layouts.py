"""Layouts of Keras whose patterns match nothing.

Keras keeps a variable whole on every device if no pattern of its `LayoutMap` matches the variable's
path, and says nothing. So this module notes the paths for which Keras looks up a layout, and names
the patterns that matched none of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import Any, Final

from .._core.complaint import complain
from .._core.conceal import concealed
from .on_import import on_import

_MODULE: Final = "keras.src.distribution.distribution_lib"
_NEAREST: Final = 3


class _Lookups:
    """What Keras has looked up in one `LayoutMap` since the task began."""

    def __init__(self, layouts: Any) -> None:
        self.layouts = layouts
        self.variables: dict[str, None] = {}
        self.outputs: dict[str, None] = {}
        self.has_weights = False
        """Whether a weight was among the variables. A task that continues with a model of an
        earlier task makes other variables only, such as those of an optimizer.
        """


lookups: dict[int, _Lookups] = {}
"""The lookups of the running task, by the identity of the `LayoutMap`."""


def watch() -> None:
    """Note the lookups of Keras, as soon as it is imported."""
    on_import(_MODULE, _note_lookups)


def take_warnings() -> list[tuple[str, str]]:
    """Return what to say of patterns that matched nothing in this task, and what to do about each.

    The first rank also writes it to standard error. The lookups are forgotten.
    """
    from .._sky.cluster import rank_of_task

    found, ended = [], list(lookups.values())
    lookups.clear()
    for one in ended:
        try:
            if one.has_weights:
                found += [_warning(one, pattern) for pattern in one.layouts if not _matched(one, pattern)]
        except Exception as error:
            # A payload may have a `LayoutMap` of its own.
            complain(f"cannot tell whether all layouts of Keras had an effect: {type(error).__name__}: {error}")
    if rank_of_task() == 0:
        for message, hint in found:
            complain(f"warning: {message}. {hint}")
    return [(concealed(message), concealed(hint)) for message, hint in found]


def _note_lookups(module: Any) -> None:
    kind = getattr(module, "ModelParallel", None)
    for name in ("get_variable_layout", "get_tensor_layout"):
        original = getattr(kind, name, None)
        if original is not None:
            setattr(kind, name, _noting(original))


def _noting(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def look_up(self: Any, *args: Any, **kwargs: Any) -> Any:
        asked = next(iter((*args, *kwargs.values())), "")
        layouts = getattr(self, "_layout_map", None)
        if layouts is not None and getattr(asked, "_layout", None) is None:
            of_map = lookups.get(id(layouts))
            if of_map is None:
                of_map = lookups[id(layouts)] = _Lookups(layouts)
            if isinstance(asked, str):
                of_map.outputs[asked] = None
            else:
                of_map.variables[asked.path] = None
                of_map.has_weights |= bool(asked.trainable and len(asked.shape))
        return original(self, *args, **kwargs)

    return look_up


def _matched(one: _Lookups, pattern: str) -> bool:
    # Keras's own class decides: from 3.14 on, a pattern must match the whole path.
    alone = type(one.layouts)(one.layouts.device_mesh)
    alone[pattern] = one.layouts[pattern]
    return any(alone[path] is not None for path in (*one.variables, *one.outputs))


def _warning(one: _Lookups, pattern: str) -> tuple[str, str]:
    import difflib

    variables = list(one.variables)
    plain = re.sub(r"[\\^$]|[.][*+?]", "", pattern)

    def likeness(path: str) -> float:
        return difflib.SequenceMatcher(None, plain, path).ratio()

    nearest = sorted(variables, key=likeness, reverse=True)[:_NEAREST]
    message = (
        f"the layout of {pattern!r} has no effect: the pattern matched none of the {len(variables)} variables that the "
        f"task made (the nearest: {', '.join(nearest)}), so what it was meant to divide is whole on every device"
    )
    part = next((path for path in variables if re.search(pattern, path)), None)
    if part is not None:
        return message, (
            f"the pattern matches a part of {part!r}, and this version of Keras compares it with the whole path: "
            f"write {'.*' + pattern!r} or {'.*' + pattern + '.*'!r}"
        )
    return message, (
        "write a pattern that matches the paths of the variables, `[weight.path for weight in model.weights]`, or give "
        "the layers names; leave out a layout that the model does not need"
    )
