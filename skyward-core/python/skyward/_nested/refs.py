"""`sky.put`: a value that is pickled once and passed to many calls."""

from __future__ import annotations

from typing import Any

from .._calls.errors import CallError
from .._calls.handlers import raised_by_handler
from .._calls.pickles import dumps, loads
from .._calls.references import Reference, Unstored
from .arrays import Storing, storing
from .outside import is_outside
from .start import current


class Ref(Reference):
    """A handle to a value, as returned by `sky.put`; a call that gets it sees the value itself.

    Large arrays of the value stay in the store of this worker's node while the handle lives.
    """

    __slots__ = ()

    def __init__(self, value: Any) -> None:
        """Pickle the current state of a value.

        Raises:
            CallError: calls cannot be submitted here, or the value cannot be pickled.
        """
        outside = is_outside()
        if not outside:
            current()
        keeping = Unstored() if outside else storing()
        try:
            body = dumps(value, storing=keeping)
        except Exception as error:
            if raised_by_handler(error):
                raise
            kind = type(value).__qualname__
            raise CallError(f"a {kind} cannot be put into the store, because it cannot be pickled: {error}") from error
        stored = keeping.reduce_bytes(body) if isinstance(keeping, Storing) else None
        super().__init__(stored or (loads, (bytes(body),)), [] if keeping is None else keeping.holds)

    def get(self) -> Any:
        """Return the value as calls get it: a copy, which is unpickled each time."""
        function, arguments = self.reduced
        return function(*arguments)

    def __reduce__(self) -> Any:
        raise TypeError("the result of sky.put can only be passed to calls of the same pool")


def put(value: Any) -> Ref:
    """Pickle a value once, for many calls.

    For example::

        def main(table: list[float]) -> float:
            shared = sky.put(np.array(table))
            return max(sky.map(score, itertools.repeat(shared), range(100)))

    Pass the returned handle as an argument of a call, or anywhere inside an argument; the function
    gets the value. Large arrays of the value are in memory once per node.

    Args:
        value: any value that can be pickled. Later changes of the value have no effect on calls.

    Returns:
        The handle to pass to calls.

    Raises:
        CallError: calls cannot be submitted here, or the value cannot be pickled.
    """
    return Ref(value)
