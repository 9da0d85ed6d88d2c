"""Skyward inside a payload: `import skyward as sky`.

Everything here also works outside a pool, where it behaves as in a world of one worker. A payload
can therefore be run and tested as a plain Python script.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import integrations
    from ._calls.errors import CallError, RemoteError, StoreFull, WorkerLost
    from ._calls.future import Future, as_completed, wait
    from ._calls.options import Retry, map, options, submit
    from ._calls.refs import Ref, put
    from ._cluster import Accelerator, InstanceInfo, Network, Peer, instance_info
    from ._hooks import hook_value
    from ._notices import notice, on_notice
    from ._output import compute, function, redirect_output, silent, stderr, stdout
    from ._plan import PlanError, same_plan
    from ._progress import progress
    from ._report import report
    from ._shard import is_head, shard
    from ._trace import trace_context

__version__ = "0.1.0"

__all__ = [
    "Accelerator",
    "CallError",
    "Future",
    "InstanceInfo",
    "Network",
    "Peer",
    "PlanError",
    "Ref",
    "RemoteError",
    "Retry",
    "StoreFull",
    "WorkerLost",
    "as_completed",
    "compute",
    "function",
    "hook_value",
    "instance_info",
    "integrations",
    "is_head",
    "map",
    "notice",
    "on_notice",
    "options",
    "progress",
    "put",
    "redirect_output",
    "report",
    "same_plan",
    "shard",
    "silent",
    "stderr",
    "stdout",
    "submit",
    "trace_context",
    "wait",
]

_HOMES = {
    "Accelerator": "_cluster",
    "InstanceInfo": "_cluster",
    "Network": "_cluster",
    "Peer": "_cluster",
    "PlanError": "_plan",
    "hook_value": "_hooks",
    "instance_info": "_cluster",
    "is_head": "_shard",
    "shard": "_shard",
    "notice": "_notices",
    "on_notice": "_notices",
    "compute": "_output",
    "function": "_output",
    "progress": "_progress",
    "redirect_output": "_output",
    "report": "_report",
    "same_plan": "_plan",
    "silent": "_output",
    "stderr": "_output",
    "stdout": "_output",
    "trace_context": "_trace",
    "CallError": "_calls.errors",
    "Future": "_calls.future",
    "RemoteError": "_calls.errors",
    "Ref": "_calls.refs",
    "Retry": "_calls.options",
    "StoreFull": "_calls.errors",
    "WorkerLost": "_calls.errors",
    "as_completed": "_calls.future",
    "map": "_calls.options",
    "options": "_calls.options",
    "put": "_calls.refs",
    "submit": "_calls.options",
    "wait": "_calls.future",
}


def __getattr__(name: str) -> Any:
    """Load a public name at its first use, so that the worker starts without loading any."""
    from importlib import import_module

    if name == "integrations":
        return import_module(".integrations", __name__)
    if name not in _HOMES:
        from ._unknown import unknown

        raise AttributeError(unknown(__name__, name, __all__))
    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
