"""The key of `multiprocessing` in a worker: all workers of a node have the same.

With it, processes of different workers can connect to each other's managers, as the processes of one
Python program can. `multiprocessing` makes a key of its own when it is imported; the node's key
replaces that one then, and not earlier, because most payloads never import `multiprocessing`.
"""

from __future__ import annotations

from types import ModuleType

from .on_import import on_import


def share(key: bytes) -> None:
    """Have this process use a key, and with it all processes that `multiprocessing` starts here."""

    def use(module: ModuleType) -> None:
        module.current_process().authkey = key

    on_import("multiprocessing.process", use)
