"""The key of `multiprocessing` in a worker: all workers of a node have the same.

With it, processes of different workers can connect to each other's managers, as the processes of one
Python program can. `multiprocessing` makes a key of its own when it is imported; the node's key replaces that one then,
and not earlier, because most payloads never import `multiprocessing`.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, Final, cast

_MODULE: Final = "multiprocessing.process"


def share(key: bytes) -> None:
    """Have this process use a key, and with it all processes that `multiprocessing` starts here."""
    module = sys.modules.get(_MODULE)
    if module is None:
        sys.meta_path.insert(0, cast("Any", _Finder(key)))
    else:
        _set(module, key)


class _Finder:
    """Finds the module that makes the key, and sets the key when the module was imported."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec of the module; called by the import system."""
        if name != _MODULE:
            return None
        sys.meta_path.remove(cast("Any", self))
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            loader = cast("Any", spec.loader)
            execute = loader.exec_module

            def execute_and_set(module: ModuleType) -> None:
                execute(module)
                _set(module, self._key)

            loader.exec_module = execute_and_set
        return spec


def _set(module: ModuleType, key: bytes) -> None:
    module.current_process().authkey = key
