"""The store of this process, if its node has one."""

from __future__ import annotations

from .._core import state
from .mappings import Mappings
from .store import Store


def found() -> Store | None:
    """Return the store of this process, created at its first use."""
    worker = state.worker
    if worker is None or worker.store_folder is None:
        return None
    store: Store | None = worker.store
    if store is None:
        # Without a lock, because an interrupt may leave it locked. Two stores do no harm.
        store = worker.store = Store(worker.store_folder, worker.store_bytes)
    return store


def mappings() -> Mappings | None:
    """Return the mappings of the store of this process, if it has one already."""
    store: Store | None = state.worker.store if state.worker is not None else None
    return None if store is None else store.mappings


def on_loaded() -> None:
    """Note that the arguments of a call are complete."""
    kept = mappings()
    if kept is not None:
        kept.on_loaded()


def on_ended() -> None:
    """Note that a call has ended."""
    kept = mappings()
    if kept is not None:
        kept.on_ended()
