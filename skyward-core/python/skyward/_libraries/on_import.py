"""What is done to a module of a library as soon as the library is imported, and not earlier."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
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
    """Finds one module where the others find it, to call the action once it is loaded."""

    def __init__(self, name: str, action: Action) -> None:
        self._name = name
        self._action = action

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the module's specification, if it is this module; see `importlib`."""
        if name != self._name:
            return None
        # All that follow: packages that are installed for editing have finders of their own.
        following = sys.meta_path[sys.meta_path.index(self) + 1 :] if self in sys.meta_path else sys.meta_path
        # `importlib` passes over what has no such method too.
        finds = (finder.find_spec for finder in following if hasattr(finder, "find_spec"))
        spec = next((spec for find in finds if (spec := find(name, path, target)) is not None), None)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            loader: Any = _Loader(spec.loader, self)
            spec.loader = loader
        return spec

    def end(self, module: ModuleType) -> None:
        """Call the action with the module that was loaded, if this is the first time."""
        # Not before: whoever only looks for a module does not load it.
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            self._action(module)


class _Loader:
    """Loads the module with its own loader.

    That loader is not changed: it may load other modules too, as those of zip files do.
    """

    def __init__(self, loader: Any, finder: _Finder) -> None:
        self._loader = loader
        self._finder = finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def exec_module(self, module: Any) -> None:
        """Run the module's code; see `importlib`."""
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._finder.end(module)
