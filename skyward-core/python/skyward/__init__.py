"""Skyward inside a payload: `import skyward as sky`.

Everything here also works outside a pool, where it behaves as in a world of one worker. A payload
can therefore be run and tested as a plain Python script.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import integrations
    from ._calls.errors import CallError, RemoteError, StoreFull, WorkerLost
    from ._nested.future import Future, as_completed, wait
    from ._nested.options import Retry, map, options, submit
    from ._nested.refs import Ref, put
    from ._sky.artifact import Artifact, artifact
    from ._sky.checkpoint_values import Checkpoint, CheckpointError
    from ._sky.checkpoints import Checkpoints, checkpoints
    from ._sky.cluster import Accelerator, InstanceInfo, Network, Peer, instance_info
    from ._sky.data import DataError, data
    from ._sky.notices import notice, on_notice
    from ._sky.output import compute, function, redirect_output, silent, stderr, stdout
    from ._sky.plan import PlanError, same_plan
    from ._sky.progress import progress
    from ._sky.report import report
    from ._sky.shard import is_head, shard
    from ._sky.trace import trace_context
    from ._tasks.hooks import hook_value

__version__ = "0.1.0"

__all__ = [
    "Accelerator",
    "Artifact",
    "CallError",
    "Checkpoint",
    "CheckpointError",
    "Checkpoints",
    "DataError",
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
    "artifact",
    "as_completed",
    "checkpoints",
    "compute",
    "data",
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
    "Accelerator": "_sky.cluster",
    "Artifact": "_sky.artifact",
    "Checkpoint": "_sky.checkpoint_values",
    "CheckpointError": "_sky.checkpoint_values",
    "Checkpoints": "_sky.checkpoints",
    "DataError": "_sky.data",
    "InstanceInfo": "_sky.cluster",
    "Network": "_sky.cluster",
    "Peer": "_sky.cluster",
    "PlanError": "_sky.plan",
    "artifact": "_sky.artifact",
    "checkpoints": "_sky.checkpoints",
    "data": "_sky.data",
    "hook_value": "_tasks.hooks",
    "instance_info": "_sky.cluster",
    "is_head": "_sky.shard",
    "shard": "_sky.shard",
    "notice": "_sky.notices",
    "on_notice": "_sky.notices",
    "compute": "_sky.output",
    "function": "_sky.output",
    "progress": "_sky.progress",
    "redirect_output": "_sky.output",
    "report": "_sky.report",
    "same_plan": "_sky.plan",
    "silent": "_sky.output",
    "stderr": "_sky.output",
    "stdout": "_sky.output",
    "trace_context": "_sky.trace",
    "CallError": "_calls.errors",
    "Future": "_nested.future",
    "RemoteError": "_calls.errors",
    "Ref": "_nested.refs",
    "Retry": "_nested.options",
    "StoreFull": "_calls.errors",
    "WorkerLost": "_calls.errors",
    "as_completed": "_nested.future",
    "map": "_nested.options",
    "options": "_nested.options",
    "put": "_nested.refs",
    "submit": "_nested.options",
    "wait": "_nested.future",
}


if not TYPE_CHECKING:
    # A type checker would take any name for one of this module.
    def __getattr__(name: str) -> Any:
        """Load a public name at its first use, so that the worker starts without loading any."""
        from importlib import import_module

        if name == "integrations":
            return import_module(".integrations", __name__)
        if name not in _HOMES:
            from ._core.unknown import unknown

            raise AttributeError(unknown(__name__, name, __all__))
        value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
