"""State of the worker process, in a module that is cheap to import."""

from __future__ import annotations

from typing import Any

cluster: dict[str, Any] | None = None
"""The `cluster` map of the start spec; None outside a worker."""

progress: int | None = None
"""The file through which the payload reports progress; None outside a worker."""

gang: bool = True
"""Whether the running task runs on all ranks at the same time. A task on a single worker must not
wait for other ranks.
"""

worker: Any = None
"""The `Worker` of this process, for modules that are imported on demand; None outside a worker."""

depth: int = 0
"""The number of callers above the running task; 0 unless the task is a call."""

attempt: tuple[int, int] | None = None
"""Identifies the attempt of the running gang, with the same value on all ranks: the number of the
gang's first task, and of the attempt.
"""
