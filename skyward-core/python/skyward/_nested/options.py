"""Options of calls, `sky.submit` and `sky.map`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from .._calls.errors import CallError, StoreFull
from .._calls.pickles import name_of, pack_call
from .._libraries import seeds
from . import mapping, outside, submitting
from .arrays import Seen, storing
from .future import Future
from .start import current


class Retry(NamedTuple):
    """How often a call may be retried, by the cause that ended the last attempt.

    An exception that the call raises is not such a cause: it is never retried.
    """

    crash: int = 1
    """Retries after a crash of the worker."""
    out_of_memory: int = 1
    """Retries after the worker was killed because memory ran out."""
    node_lost: int = 2
    """Retries after the node was lost."""
    preempted: int = 5
    """Retries after the provider has taken the machine back."""


_DEFAULT: Final = Retry()


class Options:
    """The result of `sky.options`."""

    def __init__(
        self,
        retry: Retry = _DEFAULT,
        timeout: float | None = None,
        queue_timeout: float | None = None,
        help: bool = True,
    ) -> None:
        """Check the options.

        Args:
            retry: retries after losses.
            timeout: seconds that each call may take.
            queue_timeout: seconds that each call may wait for a worker.
            help: whether the worker of a caller may run the calls.

        Raises:
            TypeError: an option has the wrong type.
            ValueError: an option is out of range.
        """
        if not isinstance(retry, Retry):
            raise TypeError(f"retry must be a sky.Retry, not a {type(retry).__qualname__}")
        for name, count in zip(Retry._fields, retry, strict=True):
            if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < 1 << 32:
                raise ValueError(f"{name} must be a number of retries, not {count!r}")
        for name, seconds in (("timeout", timeout), ("queue_timeout", queue_timeout)):
            if seconds is not None and not 0 < seconds < math.inf:
                raise ValueError(f"{name} must be a positive number of seconds, or None, not {seconds!r}")
        if not isinstance(help, bool):
            raise TypeError(f"help must be True or False, not {help!r}")
        self.retry = retry
        self.timeout = timeout
        self.queue_timeout = queue_timeout
        self.help = help

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        """Submit a call like `sky.submit`, with these options."""
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
        """Map like `sky.map`, with these options, which apply to each batch.

        With a timeout, a batch has one item unless `chunksize` is given.
        """
        if self.timeout is not None and chunksize == "auto":
            chunksize = 1
        return mapping.Mapping(self._submit, fn, iterables, chunksize, window, ordered)

    def _submit(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], seen: Seen | None = None
    ) -> tuple[Future, int]:
        """Return the future, and the bytes of the call in its body and in the store."""
        if not callable(fn):
            raise TypeError(f"sky.submit takes a function and its arguments, not a {type(fn).__qualname__}")
        if outside.is_outside():
            return outside.submit(fn, args, kwargs, self.timeout, self.help)
        hub = current()
        keeping = storing(seen)
        # A batch has a seed for each of its items, whose number does not depend on the batches.
        seed = None if seeds.root is None or type(fn) is mapping.Batch else hub.next_seed()
        body = pack_call(fn, args, kwargs, keeping, seed)
        if len(body) > hub.max_frame_bytes:
            what = f"the call of {name_of(fn)} has {len(body)} bytes; a frame holds at most {hub.max_frame_bytes}"
            if keeping is not None and keeping.full:
                raise StoreFull(f"{what}, and its arrays do not fit into the store: {keeping.full}")
            raise CallError(f"{what}; let the function load its data itself, or pass a part of it")
        if keeping is None:
            return submitting.submit(hub, body, self._packed()), len(body)
        return submitting.submit(hub, body, self._packed(), keeping.holds), len(body) + keeping.looked_at

    def _packed(self) -> dict[str, Any] | None:
        """Return the options as the client expects them; None if all have their defaults."""
        packed: dict[str, Any] = {} if self.retry == _DEFAULT else self.retry._asdict()
        if self.timeout is not None:
            packed["timeout"] = float(self.timeout)
        if self.queue_timeout is not None:
            packed["queue_timeout"] = float(self.queue_timeout)
        if not self.help:
            packed["help"] = False
        return packed or None


_PLAIN: Final = Options()


def options(
    retry: Retry = _DEFAULT,
    timeout: float | None = None,
    queue_timeout: float | None = None,
    help: bool = True,
) -> Options:
    """Set options for calls: `sky.options(timeout=60).submit(fit, part)`.

    Args:
        retry: how often a call is retried when its worker or node is lost.
        timeout: seconds that each call may take, counted from its begin. Then it is ended, and its
            future raises `TimeoutError`.
        queue_timeout: seconds that each call may wait for a worker. Then it is not begun, and its
            future raises `TimeoutError`.
        help: whether the worker that runs a caller of the call may run the call too. False for a
            call that needs a lock or memory that its caller holds, or that changes what its caller
            uses. In a pool of one worker, such a call is a `CallError`.

    Returns:
        An object with the methods `submit` and `map`, like `sky.submit` and `sky.map`.

    Raises:
        TypeError: an option has the wrong type.
        ValueError: an option is out of range.
    """
    return Options(retry, timeout, queue_timeout, help)


def submit(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
    """Call a function on a worker of the pool, without waiting for it.

    Wait for the value by `result()` of the returned future::

        def main(parts: list[str]) -> float:
            futures = [sky.submit(score, part) for part in parts]
            return sum(future.result() for future in futures)

    The call may run on any worker, also on this one: a worker that waits for its calls runs some of
    them. The function may submit calls itself, up to 64 levels deep. When the task that submitted a
    call ends, the call is cancelled.

    Function, arguments and result are pickled. All workers can import functions and classes of the
    payload's own modules. Lambdas and inner functions need the package `cloudpickle` (or joblib) in
    the image.

    Args:
        fn: the function.
        args: its positional arguments.
        kwargs: its keyword arguments.

    Returns:
        The future of the call.

    Raises:
        CallError: calls cannot be submitted here, or the call cannot be pickled.
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
    """Call a function for each item on the workers of the pool, many items at a time.

    Like the built-in `map`, it returns an iterator of the results. The iterables are consumed as
    the results are. Short calls are sent in batches, which grow until a batch takes about 20 ms. An
    exception of a call is raised at the place of its result, and ends the iterator. Closing or
    dropping the iterator cancels the running calls::

        for loss in sky.map(fit, seeds, rates):
            print(loss)

    Args:
        fn: the function, which takes one argument per iterable.
        iterables: its arguments; the shortest iterable ends the results.
        chunksize: items per call; `"auto"` to choose it by their duration.
        window: the most items that are running or not yet consumed; None for as many as keep all
            workers busy.
        ordered: whether results come in the order of the items, or as soon as they are there.

    Raises:
        CallError: calls cannot be submitted here, or an item cannot be pickled.
    """
    return _PLAIN.map(fn, *iterables, chunksize=chunksize, window=window, ordered=ordered)
