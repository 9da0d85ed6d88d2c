"""Proxies of `multiprocessing.Manager` in calls.

A manager accepts only who knows its key. `multiprocessing` gives the key to the processes that it
starts, and pickles no key for others. In a call, the key comes with the proxy.
"""

from __future__ import annotations

from typing import Any

from .._core import state
from .errors import CallError
from .handlers import raised_by_handler


def reduce(proxy: Any) -> Any:
    """Return how to pickle a proxy with the key of its manager."""
    from multiprocessing.managers import RebuildProxy  # type: ignore[attr-defined, unused-ignore]

    function, arguments = proxy.__reduce__()[:2]
    if function is not RebuildProxy:
        return function, arguments
    make, token, serializer, options = arguments
    return restore, (_node(), make, token, serializer, {**options, "authkey": bytes(proxy._authkey)})


def restore(node: int | None, make: Any, token: Any, serializer: str, options: dict[str, Any]) -> Any:
    """Return the proxy, connected to its manager.

    Args:
        node: the node of the process that has pickled the proxy.
        make: makes the proxy.
        token: the address of the manager, and its name for the object.
        serializer: how the manager encodes messages.
        options: further arguments of `make`.

    Raises:
        CallError: the manager cannot be reached from here.
    """
    from multiprocessing import ProcessError
    from multiprocessing.managers import RebuildProxy  # type: ignore[attr-defined, unused-ignore]

    advice = "pass values in its place, or let all workers be on one node"
    here = _node()
    if isinstance(token.address, (str, bytes)) and node != here and None not in (node, here):
        raise CallError(
            f"a proxy of a `multiprocessing.Manager` works on node {node} alone, where the manager listens at a path, "
            f"and this call runs on node {here}; {advice}"
        )
    try:
        return RebuildProxy(make, token, serializer, options)
    except (OSError, EOFError, ProcessError) as error:
        if raised_by_handler(error):
            raise
        why = str(error) or type(error).__name__
        raise CallError(
            f"the `multiprocessing.Manager` at {token.address!r}, of which the call has a proxy, cannot be reached: "
            f"{why}; keep the manager until the call has ended, or {advice}"
        ) from error


def _node() -> int | None:
    """Return the node of this process; None outside a worker."""
    cluster = state.cluster
    return int(cluster["node"]) if cluster else None
