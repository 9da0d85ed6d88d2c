"""What calls need of the worker that runs them."""

from __future__ import annotations

from typing import Protocol

from .._calls.store import Store
from .._tasks.runner import Runner
from .._tasks.session import Session


class Host(Protocol):
    """The worker of this process, which is defined above the calls."""

    rank: int
    pid: int
    generation: int
    retain_bytes: int
    """Bytes of unacknowledged answers from which on the worker begins no task."""
    session: Session
    runner: Runner
    store: Store | None

    @property
    def terminated(self) -> bool:
        """Whether the worker was asked to end as soon as possible."""

    def look(self) -> None:
        """Read the connection, then interrupt the running task or call notice functions if needed."""

    def look_while_waiting(self) -> None:
        """Do what `look` does while the main thread waits for calls, without a busy runner."""

    def on_quiet(self) -> None:
        """Give up what only a call that comes soon could use."""

    def ask_for_calls(self) -> None:
        """Ask the agent to report to the client that there are calls."""
