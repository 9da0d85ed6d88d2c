"""Where the saves of a block go: to the mover of the node, or into a folder outside a pool."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from .checkpoint_values import Checkpoint

if TYPE_CHECKING:
    from .checkpoint_save import Half


class Place(ABC):
    """Where the saves of a block go."""

    def __init__(self) -> None:
        self.start: Checkpoint | None = None
        """The checkpoint from which the block begins."""
        self.steps: memoryview = memoryview(bytearray(16)).cast("q")
        """Two numbers, which the mover reads and writes: the step of this rank, and the last ask for it."""
        self.ranks = 1
        """How many ranks must agree on a step."""
        self.saves = True
        """Whether this rank's files are kept."""
        self.handled = 0
        """The number of the last ask that is answered."""
        self.targets: list[int] = []
        """The steps at which all ranks save, until `due` has said so. An ask may end before the step of the
        one before it is reached.
        """
        self.is_asking = False
        """Whether this rank has asked for a common step, and knows none yet."""
        self.withdrawn = 0.0
        """When an ask ended without a step, by the monotonic clock."""
        self.folder = ""
        """The folder in which saves are made."""

    @abstractmethod
    def open(self, until: float) -> None:
        """Find what the block begins from, until this time of the monotonic clock."""

    @abstractmethod
    def check(self) -> None:
        """Raise if no further save can be kept."""

    @abstractmethod
    def look(self) -> None:
        """Take what has arrived, and raise if no further save can be kept. This does not wait."""

    @abstractmethod
    def ask(self, why: str, step: int) -> None:
        """Ask that all ranks agree on a step."""

    @abstractmethod
    def settle(self, until: float) -> None:
        """Wait for the answer to the last ask."""

    @abstractmethod
    def publish(self, half: Half, step: int, meta: str) -> None:
        """Keep a complete save."""

    @abstractmethod
    def wait(self, step: int, until: float) -> bool:
        """Wait until all saves up to this step are kept for good; return False if that takes too long."""

    @abstractmethod
    def close(self, failed: bool) -> None:
        """Leave the block."""
