"""What can be said of a call beside its function and arguments, and `submit`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from . import mapping
from .arrays import Seen, storing
from .errors import CallError, StoreFull
from .future import Future
from .pickles import name_of, pack_call
from .start import current


class Retry(NamedTuple):
    """How many more tries a call gets, by the cause that ended the one before. What a call raises is no such cause."""

    crash: int = 1
    """Its worker has crashed."""
    out_of_memory: int = 1
    """Its worker was killed for want of memory."""
    node_lost: int = 2
    """The node is gone."""
    preempted: int = 5
    """The provider has taken the machine back."""


_DEFAULT: Final = Retry()


class Options:
    """What `sky.options` returns."""

    def __init__(self, retry: Retry = _DEFAULT, timeout: float | None = None) -> None:
        """Check the options.

        Args:
            retry: tries after losses.
            timeout: seconds that each call may take.

        Raises:
            TypeError: one is of another type.
            ValueError: one is out of range.
        """
        if not isinstance(retry, Retry):
            raise TypeError(f"retry must be a sky.Retry, not a {type(retry).__qualname__}")
        for name, count in zip(Retry._fields, retry, strict=True):
            if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < 1 << 32:
                raise ValueError(f"{name} must be a number of tries, not {count!r}")
        if timeout is not None and not 0 < timeout < math.inf:
            raise ValueError(f"timeout must be a positive number of seconds, or None, not {timeout!r}")
        self.retry = retry
        self.timeout = timeout

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        """As `sky.submit`, with these options."""
        return self._submit(fn, args, kwargs)[0]

    def map(
        self,
        fn: Callable[..., Any],
        /,
        *iterables: Iterable[Any],
        chunksize: int | str = "auto",
        window: int | None = None,
        ordered: bool = True,
    ) -> Iterator[Any]:
        """As `sky.map`, with these options, which hold for each batch. With a timeout a batch has one item.

        Another chunksize than `"auto"` has its way.
        """
        if self.timeout is not None and chunksize == "auto":
            chunksize = 1
        return mapping.Mapping(self._submit, fn, iterables, chunksize, window, ordered)

    def _submit(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], seen: Seen | None = None
    ) -> tuple[Future, int]:
        """The future, and how many bytes the call has brought, be it in its body or to the store."""
        if not callable(fn):
            raise TypeError(f"submit takes a function and its arguments, not a {type(fn).__qualname__}")
        hub = current()
        keeping = storing(seen)
        body = pack_call(fn, args, kwargs, keeping)
        if len(body) > hub.max_frame:
            what = f"the call of {name_of(fn)} has {len(body)} bytes, and a frame may have {hub.max_frame}"
            if keeping is not None and keeping.full:
                raise StoreFull(f"{what}; its arrays have no room elsewhere: {keeping.full}")
            raise CallError(f"{what}; have the function load what it needs, or pass a part of it")
        if keeping is None:
            return hub.submit(body, self._packed()), len(body)
        return hub.submit(body, self._packed(), keeping.holds), len(body) + keeping.looked_at

    def _packed(self) -> dict[str, Any] | None:
        """The options as the client gets them; None where all are as they are without any."""
        packed: dict[str, Any] = {} if self.retry == _DEFAULT else self.retry._asdict()
        if self.timeout is not None:
            packed["timeout"] = float(self.timeout)
        return packed or None


_PLAIN: Final = Options()


def options(retry: Retry = _DEFAULT, timeout: float | None = None) -> Options:
    """Options for calls: `sky.options(timeout=60).submit(fit, part)`.

    Args:
        retry: how many more tries a call gets when what runs it is lost.
        timeout: seconds that each call may take, from when it begins; then it raises `TimeoutError`.

    Returns:
        Something with the methods `submit` and `map`.
    """
    return Options(retry, timeout)


def submit(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
    """Have a worker of the pool call a function, and go on: `result()` of what this returns waits for the value.

    For example::

        def main(parts: list[str]) -> float:
            futures = [sky.submit(score, part) for part in parts]
            return sum(future.result() for future in futures)

    The call may run on any worker, also on this one: a worker that waits for its calls runs some of them. It may itself
    submit calls, up to 64 levels deep. When the task that has submitted it ends, it is cancelled.

    Function, arguments and result are pickled. Functions and classes of the payload's own modules are found on every
    worker; lambdas and inner functions need the package `cloudpickle` (or joblib) in the image.

    Args:
        fn: the function.
        args: its arguments.
        kwargs: its arguments by name.

    Raises:
        CallError: this is no place to submit calls, or the call cannot be pickled.
    """
    return _PLAIN._submit(fn, args, kwargs)[0]


def map(
    fn: Callable[..., Any],
    /,
    *iterables: Iterable[Any],
    chunksize: int | str = "auto",
    window: int | None = None,
    ordered: bool = True,
) -> Iterator[Any]:
    """Call a function for each item on the workers of the pool: `map`, but with many at a time.

    The iterables are consumed as results are. Items whose calls take short are sent in batches, which grow until one
    takes some 20 ms. What a call raises is raised at its place, and ends the iterator; closing or dropping the iterator
    gives up what is under way.

    Args:
        fn: the function, with as many arguments as there are iterables.
        iterables: its arguments; the shortest one counts.
        chunksize: items of one call; `"auto"`: by how long they take.
        window: most items that are under way or not yet consumed; None: what keeps all workers busy.
        ordered: whether the results come in the order of the items, or as they are there.

    Raises:
        CallError: this is no place to submit calls, or an item cannot be pickled.
    """
    return _PLAIN.map(fn, *iterables, chunksize=chunksize, window=window, ordered=ordered)
