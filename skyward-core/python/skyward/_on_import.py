"""What is done to a module of a library as soon as the library is imported, and not earlier."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

Action = Callable[[ModuleType], None]


def on_import(name: str, action: Action) -> None:
    """Call an action with a module: now if the module is loaded, otherwise when it was imported.

    Args:
        name: the full name of the module.
        action: gets the module after its code has run.
    """
    module = sys.modules.get(name)
    if module is None:
        sys.meta_path.insert(0, _Finder(name, action))
    else:
        action(module)


class _Finder:
    """Finds one module where the others would find it, to call the action once it is loaded."""

    def __init__(self, name: str, action: Action) -> None:
        self._name = name
        self._action = action

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the module's specification, if it is this module; see `importlib`."""
        if name != self._name:
            return None
        with suppress(ValueError):
            sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        loader: Any = None if spec is None else spec.loader
        if loader is not None:
            load = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                self._action(module)

            loader.exec_module = exec_module
        return spec
