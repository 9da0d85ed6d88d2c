"""The trace that the task which runs belongs to."""

from __future__ import annotations

import os
from typing import Final

_VARIABLES: Final = ("TRACEPARENT", "TRACESTATE")
_outside: Final = tuple(os.environ.get(name) for name in _VARIABLES)
"""What holds for tasks without a trace of their own."""


def belong(trace: tuple[str, str] | None) -> None:
    """Put the trace of a task, its `traceparent` and `tracestate`, into the environment.

    That is where OpenTelemetry looks for it, and where child processes have it from.
    """
    for name, value in zip(_VARIABLES, _outside if trace is None else trace, strict=True):
        if value:
            os.environ[name] = value
        else:
            os.environ.pop(name, None)


def trace_context() -> dict[str, str]:
    """The trace that the task belongs to, as header fields: `traceparent` and `tracestate`; empty without one.

    It is what OpenTelemetry's propagators take: `opentelemetry.propagate.extract(sky.trace_context())`. Child processes
    of the task see the same.
    """
    found = ((name.lower(), os.environ.get(name)) for name in _VARIABLES)
    return {name: value for name, value in found if value}
