"""What the worker process knows about itself, in a module that costs nothing to import."""

from __future__ import annotations

from typing import Any

cluster: dict[str, Any] | None = None
"""The `cluster` map of the start spec; None outside of a worker."""

progress: int | None = None
"""The file through which the payload says that it goes on; None outside of a worker."""

gang: bool = True
"""Whether all ranks run the task that runs at the same time; one that runs alone must not wait for the others."""

worker: Any = None
"""The `Worker` of this process, for what is imported only when it is needed; None outside of one."""

depth: int = 0
"""The number of callers above the task that runs; 0 unless it is a call."""

attempt: tuple[int, int] | None = None
"""The try at a gang that runs, the same on all ranks: the number of the gang's first task, and the try."""
