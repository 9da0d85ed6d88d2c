"""State of the worker process, in a module that is cheap to import."""

from __future__ import annotations

from typing import Any, Final

cluster: dict[str, Any] | None = None
"""The `cluster` map of the start spec; None outside a worker."""

progress: int | None = None
"""The file through which the payload reports progress; None outside a worker."""

gang: bool = True
"""Whether the running task runs on all ranks at the same time. A task on a single worker must not
wait for other ranks.
"""

RANKS: Final = "SKYWARD_RANKS"
"""The environment variable that gives `ranks` to processes that the payload starts."""

ranks: int | None = None
"""How many ranks run the running task: those of its broadcast, or 1. None before the first task and
outside a worker. An elastic pool may have grown since this worker was started.
"""

worker: Any = None
"""The `Worker` of this process, for modules that are imported on demand; None outside a worker."""

most_workers: int | None = None
"""How many workers the pool may have: an elastic or partial one when it has its most nodes. None if the
client has not said so, and outside a worker.
"""

depth: int = 0
"""The number of callers above the running task; 0 unless the task is a call."""

attempt: tuple[int, int] | None = None
"""Identifies the attempt of the running gang, with the same value on all ranks: the number of the
gang's first task, and of the attempt.
"""
