"""Exchange values between the ranks of a joined world outside of collectives.

The ranks use the key-value store of their rendezvous.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from time import monotonic
from typing import Any, Final, Protocol

from .._core import state
from .cluster import InstanceInfo, is_in_broadcast

_SLICE: Final = 1.0
"""Seconds for which one request to the store waits; between two requests the task can be
interrupted.
"""


class Store(Protocol):
    """A key-value table that all ranks of the world share."""

    def put(self, key: str, value: str) -> None:
        """Write an entry; each key is written once."""
        ...

    def get(self, key: str, seconds: float) -> str | None:
        """Return the entry as soon as it exists; None if it does not within this many seconds."""
        ...

    def drop(self, keys: list[str]) -> None:
        """Delete entries."""
        ...


class _Jax:
    def __init__(self, client: Any) -> None:
        self._client = client

    def put(self, key: str, value: str) -> None:
        self._client.key_value_set(key, value)

    def get(self, key: str, seconds: float) -> str | None:
        try:
            return str(self._client.blocking_key_value_get(key, max(1, round(seconds * 1000))))
        except Exception as error:
            if "DEADLINE_EXCEEDED" in str(error) or "NOT_FOUND" in str(error):
                return None
            raise

    def drop(self, keys: list[str]) -> None:
        for key in keys:
            self._client.key_value_delete(key)


class _Torch:
    def __init__(self, store: Any) -> None:
        self._store = store

    def put(self, key: str, value: str) -> None:
        self._store.set(key, value)

    def get(self, key: str, seconds: float) -> str | None:
        try:
            self._store.wait([key], timedelta(seconds=max(seconds, 0.01)))
        except Exception as error:
            # torch's own class for timeouts, and the messages of versions without it.
            if type(error).__name__ == "DistStoreError" or "imeout" in str(error) or "timed out" in str(error):
                return None
            raise
        return str(self._store.get(key).decode())

    def drop(self, keys: list[str]) -> None:
        for key in keys:
            self._store.delete_key(key)


def world_store(info: InstanceInfo) -> Store | None:
    """Return the store of the world that this worker has joined; None if it has joined none."""
    if info.total_workers == 1 or not is_in_broadcast():
        return None
    jax: Any = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    if getattr(jax, "client", None) is not None and jax.num_processes == info.total_workers:
        return _Jax(jax.client)
    torch: Any = sys.modules.get("skyward.integrations._torch_store")
    joined = None if torch is None else torch.world()
    if joined is not None:
        return _Torch(joined.store)
    c10d: Any = sys.modules.get("torch.distributed.distributed_c10d")
    if c10d is not None and c10d.is_initialized() and c10d.get_world_size() == info.total_workers:
        return _Torch(c10d._get_default_store())
    return None


_count = 0
_counted: tuple[int, int] | None = None
_settled: list[str] = []
"""The keys of the last question that all ranks answered; rank 0 deletes them after the next
question.
"""


def agree(
    store: Store, info: InstanceInfo, mine: str, verdict: Callable[[dict[int, str]], str | None], timeout: float
) -> str | None:
    """Let rank 0 check the values of all ranks, and return its verdict on every rank.

    Every rank must call this, in the same order within its task.

    Args:
        store: the store of the world.
        info: this worker's place.
        mine: the value of this rank.
        verdict: returns what is wrong with the values so far, or None; rank 0 calls it for each new
            value.
        timeout: seconds within which all ranks must send their values.

    Returns:
        What is wrong, or None.
    """
    global _settled
    prefix = _next_prefix(info)
    store.put(f"{prefix}{info.global_worker_index}", mine)
    deadline = monotonic() + timeout
    if info.global_worker_index != 0:
        # Rank 0 stops at its own deadline, which begins when it arrives here, and names the missing
        # ranks.
        answer = _wait(store, f"{prefix}verdict", deadline + timeout + 5)
        return f"rank 0 did not come within {timeout:g} s" if answer is None else answer or None
    received: dict[int, str] = {0: mine}
    found: str | None = None
    for rank in range(1, info.total_workers):
        value = _wait(store, f"{prefix}{rank}", deadline)
        if value is None:
            found = _missing(store, prefix, info, timeout)
            break
        received[rank] = value
        found = verdict(received)
        if found is not None:
            break
    store.put(f"{prefix}verdict", found or "")
    if len(received) == info.total_workers:
        # All ranks have read the previous verdict, or they would not have sent these values.
        store.drop(_settled)
        _settled = [*(f"{prefix}{rank}" for rank in range(info.total_workers)), f"{prefix}verdict"]
    return found


def _next_prefix(info: InstanceInfo) -> str:
    """Return a key prefix that all ranks use for this question, and no other attempt does."""
    global _count, _counted
    if _counted != state.attempt:
        _count, _counted = 0, state.attempt
    _count += 1
    first, attempt = state.attempt or (0, 0)
    return f"skyward/{info.job_id}/{info.generation}/{first}.{attempt}/{_count}/"


def _wait(store: Store, key: str, deadline: float) -> str | None:
    while True:
        left = deadline - monotonic()
        value = store.get(key, max(0.01, min(_SLICE, left)))
        if value is not None or left <= 0:
            return value


def _missing(store: Store, prefix: str, info: InstanceInfo, timeout: float) -> str:
    ranks = [rank for rank in range(info.total_workers) if store.get(f"{prefix}{rank}", 0.01) is None]
    listed = ", ".join(map(str, ranks))
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {listed} did not come within {timeout:g} s"
