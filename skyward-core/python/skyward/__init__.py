"""Skyward on a node: what a payload sees as `import skyward as sky`.

Everything works outside of a pool too, as in a world of one worker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import integrations
    from ._cluster import Accelerator, InstanceInfo, Network, Peer, instance_info
    from ._output import compute, function, redirect_output, silent, stderr, stdout
    from ._progress import progress
    from ._shard import is_head, shard
    from ._trace import trace_context

__version__ = "0.1.0"

__all__ = [
    "Accelerator",
    "InstanceInfo",
    "Network",
    "Peer",
    "compute",
    "function",
    "instance_info",
    "integrations",
    "is_head",
    "progress",
    "redirect_output",
    "shard",
    "silent",
    "stderr",
    "stdout",
    "trace_context",
]

_HOMES = {
    "Accelerator": "_cluster",
    "InstanceInfo": "_cluster",
    "Network": "_cluster",
    "Peer": "_cluster",
    "instance_info": "_cluster",
    "is_head": "_shard",
    "shard": "_shard",
    "compute": "_output",
    "function": "_output",
    "progress": "_progress",
    "redirect_output": "_output",
    "silent": "_output",
    "stderr": "_output",
    "stdout": "_output",
    "trace_context": "_trace",
}


def __getattr__(name: str) -> Any:
    """Load what is asked for: the worker itself starts without any of it."""
    from importlib import import_module

    if name == "integrations":
        return import_module(".integrations", __name__)
    if name not in _HOMES:
        raise AttributeError(_unknown(__name__, name, __all__))
    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def _unknown(module: str, name: str, known: list[str]) -> str:
    """What to say of a name that a module does not have."""
    from difflib import get_close_matches

    close = get_close_matches(name, known, 1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"module {module!r} has no attribute {name!r}{hint}"


def __dir__() -> list[str]:
    return sorted(__all__)
