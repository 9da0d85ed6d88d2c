"""What the pickle of a call has by name, and the files of the store that it needs."""

from __future__ import annotations

from typing import Any

from .store import Hold


class Reference:
    """A value that is pickled already."""

    __slots__ = ("holds", "reduced")

    def __init__(self, reduced: tuple[Any, ...], holds: list[Hold]) -> None:
        """Store the pickled form.

        Args:
            reduced: how to unpickle the value: a function and its arguments.
            holds: the files of the store that it needs.
        """
        self.reduced = reduced
        self.holds = holds


class Unstored:
    """Stores nothing: arrays are pickled with their bytes.

    Used to find the argument that cannot be pickled; `Storing` puts arrays into the store.
    """

    def __init__(self) -> None:
        """Store nothing."""
        self.kind: Any = None
        """NumPy's class of arrays; None if NumPy is not loaded, or nothing is stored."""
        self.holds: list[Hold] = []
        """The files that must stay in the store until the outcome of the call."""
        self.looked_at = 0
        """The number of bytes that were hashed."""
        self.full = ""
        """The reason why an array was not stored; empty if there is none."""

    def reduce(self, array: Any) -> Any:
        """Return how to pickle an array by name; None to pickle it with its bytes."""
        return None
