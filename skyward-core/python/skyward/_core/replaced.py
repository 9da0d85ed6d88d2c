"""What a task may replace in its process: limits, users, signal handlers, functions of Python's modules.

Nobody is told when it does, and to look for all of it takes as long as a short call. So it is looked
for, and set back, before the task of another payload, after a long task, and when the worker has
nothing to do.
"""

from __future__ import annotations

# isort: off
import _signal  # type: ignore[import-not-found, unused-ignore]

# isort: on
import os
import signal
import sys
from collections.abc import Callable, Mapping
from functools import cache
from operator import itemgetter
from typing import Any, Final

State = dict[str, dict[Any, Any]]
"""What a process has, by kind, and then by what the kind names."""

_MODULES: Final = (
    *("builtins", "io", "json", "os", "pickle", "posixpath", "random", "select", "shutil", "socket"),
    *("subprocess", "tempfile", "threading", "time"),
)
"""Python's own modules whose functions and classes are put back."""
_OF_THE_WORKER: Final = {signal.SIGINT, signal.SIGTERM, signal.SIGURG, signal.SIGUSR1, signal.SIGKILL, signal.SIGSTOP}
"""The signals that the worker handles, which it takes again by itself, and those that nobody handles."""
_SIGNALS: Final = tuple(number for number in map(int, set(signal.Signals) - _OF_THE_WORKER) if number < 32)

_given: State = {}
"""What each task begins with."""
_checks: list[tuple[Callable[[], object], object]] = []
"""Functions, each with what it returns as long as nothing was replaced."""


def take() -> State:
    """Return what the process has now."""
    found: State = {kind: read() for kind, read in _READ.items()}
    for module in _loaded():
        found[module] = {name: value for name, value in vars(sys.modules[module]).items() if callable(value)}
    return found


def remember(state: State) -> None:
    """Make this what each task begins with."""
    global _given, _checks
    # A module that a task has loaded is remembered after it.
    _given, _checks = state, [(_loaded, _loaded())]
    for kind, values in state.items():
        if kind in _READ:
            _checks.append((_READ[kind], values))
        else:
            get, functions = itemgetter(*values), vars(sys.modules[kind])
            _checks.append((lambda get=get, functions=functions: get(functions), get(values)))  # type: ignore[misc]


def adopt(before: State) -> None:
    """Add what has changed since then to what each task begins with."""
    given = {kind: dict(values) for kind, values in _given.items()}
    for kind, values in take().items():
        change(given.setdefault(kind, values), before.get(kind, values), values)
    remember(given)


def change(given: dict[Any, Any], before: Mapping[Any, Any], after: Mapping[Any, Any]) -> None:
    """Change what is given as a block of code has changed it."""
    if before == after:
        return
    for name in {*before, *after}:
        if name not in after:
            given.pop(name, None)
        elif name not in before or before[name] is not after[name]:
            given[name] = after[name]


def set_back() -> list[str]:
    """Set back what was replaced; return in words what cannot be."""
    try:
        if all(read() == known for read, known in _checks):
            return []
    except KeyError:
        pass  # a function is gone
    stuck = []
    found = take()
    for kind, values in _given.items():
        now, put = found.get(kind, {}), _PUT.get(kind) or _into(kind)
        for name, value in values.items():
            if now.get(name) is not value and now.get(name) != value:
                try:
                    put(name, value)
                except (OSError, ValueError):
                    stuck.append(f"{kind} {name}".strip())
    remember(take())
    return stuck


def _loaded() -> list[str]:
    return [name for name in _MODULES if name in sys.modules]


def _limits() -> dict[str, tuple[int, int]]:
    import resource

    names, numbers = _names_of_limits()
    return dict(zip(names, map(resource.getrlimit, numbers), strict=True))


@cache
def _names_of_limits() -> tuple[tuple[str, ...], tuple[int, ...]]:
    import resource

    # Some have two names.
    names = sorted((name for name in vars(resource) if name.startswith("RLIMIT_")), reverse=True)
    found = {getattr(resource, name): name for name in names}
    return tuple(found.values()), tuple(found)


def _start_method() -> dict[str, Any]:
    contexts: Any = sys.modules.get("multiprocessing.context")
    return {"": None if contexts is None else contexts._default_context._actual_context}


_READ: Final[dict[str, Callable[[], dict[Any, Any]]]] = {
    "limit": _limits,
    "user": lambda: {"": (os.getresuid(), os.getresgid())},
    "handler of signal": lambda: dict(zip(_SIGNALS, map(_signal.getsignal, _SIGNALS), strict=True)),
    "start method": _start_method,
}
"""What is read of each kind that is no module."""


def _put_limit(name: str, value: tuple[int, int]) -> None:
    import resource

    resource.setrlimit(getattr(resource, name), value)


def _put_user(_: str, value: tuple[tuple[int, int, int], tuple[int, int, int]]) -> None:
    users, groups = value
    os.setresuid(*users)
    os.setresgid(*groups)


def _put_handler(number: int, handler: Any) -> None:
    if handler is not None:  # otherwise, native code has set it
        _signal.signal(number, handler)


def _put_start_method(_: str, context: Any) -> None:
    contexts: Any = sys.modules["multiprocessing.context"]
    contexts._default_context._actual_context = context


_PUT: Final[dict[str, Callable[[Any, Any], None]]] = {
    "limit": _put_limit,
    "user": _put_user,
    "handler of signal": _put_handler,
    "start method": _put_start_method,
}


def _into(module: str) -> Callable[[str, Any], None]:
    return lambda name, value: setattr(sys.modules[module], name, value)
