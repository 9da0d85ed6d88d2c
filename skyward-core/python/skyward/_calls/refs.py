"""`sky.put`: a value that is pickled once and given to many calls."""

from __future__ import annotations

from typing import Any

from .arrays import Reference, storing
from .errors import CallError
from .pickles import dumps, loads
from .start import current


class Ref(Reference):
    """A value that calls are given by name; in them it is the value itself.

    Its large arrays lie in the store of this worker's node as long as this lives.
    """

    __slots__ = ()

    def __init__(self, value: Any) -> None:
        """Pickle a value, as it is now.

        Raises:
            CallError: this is no place to submit calls, or the value cannot be pickled.
        """
        current()
        keeping = storing()
        try:
            body = dumps(value, storing=keeping)
        except Exception as error:
            kind = type(value).__qualname__
            raise CallError(f"a {kind} cannot be put into the store, because it cannot be pickled: {error}") from error
        stored = None if keeping is None else keeping.reduce_bytes(body)
        super().__init__(stored or (loads, (bytes(body),)), [] if keeping is None else keeping.holds)

    def get(self) -> Any:
        """The value as calls get it."""
        function, arguments = self.reduced
        return function(*arguments)

    def __reduce__(self) -> Any:
        raise TypeError("what sky.put returns can be given to calls of the same pool, and to nothing else")


def put(value: Any) -> Ref:
    """Pickle a value once, for many calls.

    For example::

        def main(table: list[float]) -> float:
            shared = sky.put(np.array(table))
            return max(sky.map(score, itertools.repeat(shared), range(100)))

    What this returns may be an argument of calls, or stand anywhere in one; the function gets the value. Its large
    arrays are in memory once for each node.

    Args:
        value: what can be pickled; later changes of it are not seen.

    Raises:
        CallError: this is no place to submit calls, or the value cannot be pickled.
    """
    return Ref(value)
