"""What the worker process knows about itself, in a module that costs nothing to import."""

from __future__ import annotations

from typing import Any

cluster: dict[str, Any] | None = None
"""The `cluster` map of the start spec; None outside of a worker."""

progress: int | None = None
"""The file through which the payload says that it goes on; None outside of a worker."""

gang: bool = True
"""Whether all ranks run the task that runs at the same time; one that runs alone must not wait for the others."""
