"""The trace context of the running task."""

from __future__ import annotations

import os
from typing import Final

from .._core import process_state

_VARIABLES: Final = ("TRACEPARENT", "TRACESTATE")
process_state.exclude(*_VARIABLES)
_outside: Final = tuple(os.environ.get(name) for name in _VARIABLES)
"""The values for tasks without a trace of their own."""


def belong(trace: tuple[str, str] | None) -> None:
    """Put the trace of a task, its `traceparent` and `tracestate`, into the environment.

    OpenTelemetry reads it there, and child processes inherit it.
    """
    for name, value in zip(_VARIABLES, _outside if trace is None else trace, strict=True):
        if value:
            os.environ[name] = value
        else:
            os.environ.pop(name, None)


def trace_context() -> dict[str, str]:
    """Return the trace of the running task as header fields; empty if there is none.

    The keys are `traceparent` and `tracestate`, the form that OpenTelemetry's propagators read:
    `opentelemetry.propagate.extract(sky.trace_context())`. In child processes of the task, this
    function returns the same.
    """
    found = ((name.lower(), os.environ.get(name)) for name in _VARIABLES)
    return {name: value for name, value in found if value}
