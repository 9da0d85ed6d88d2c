"""Futures of calls, and functions that wait for several of them."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import monotonic
from typing import Any, NamedTuple, cast

from .._calls.answers import has_raised, unpack
from .._calls.errors import CallError, CallTimeoutError
from .._calls.store import Hold
from .._core import fork
from .awaiting import Awaiting
from .frames import Frame, Pending
from .hub import Hub
from .waiting import for_calls

ALL_COMPLETED = concurrent.futures.ALL_COMPLETED
FIRST_COMPLETED = concurrent.futures.FIRST_COMPLETED
FIRST_EXCEPTION = concurrent.futures.FIRST_EXCEPTION


class Future(Pending):
    """The future outcome of a call, as returned by `sky.submit`.

    It is a `concurrent.futures.Future`. While the main thread of a worker waits in `result` or
    `exception`, the worker runs calls of the same caller. The value is unpickled on the thread that
    asks for it first.
    """

    def __init__(self, hub: Hub, call: int, frame: Frame, holds: Sequence[Hold]) -> None:
        """Create the future of a call.

        Args:
            hub: the hub of the process.
            call: the number of the call.
            frame: the caller.
            holds: the files of the store that must stay until the outcome.
        """
        super().__init__(call, frame, holds)
        self._hub = hub
        self._unpacked: tuple[Any, BaseException | None] | None = None
        # This is the first callback, so that waiting threads do not wait for the other callbacks.
        super().add_done_callback(_tell)

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the call, and return the value that its function returned.

        Meanwhile this worker runs calls of the same caller.

        Args:
            timeout: the most seconds to wait; None for no limit.

        Raises:
            TimeoutError: the call has not ended in time.
            CancelledError: the call was cancelled, or its caller has ended.
            WorkerLost: the workers that ran the call were lost.
            RemoteError: the call raised an exception that cannot be raised here.
            CallError: the call has no result for another reason.
            BaseException: the exception that the function raised. Its cause is the traceback on the
                worker that ran the call.
        """
        value, error = self._outcome(timeout)
        if error is not None:
            try:
                raise error
            finally:
                # The error's traceback refers to this frame.
                del self, error
        return value

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the call, and return the exception that it raised; None if it returned a value.

        Args:
            timeout: the most seconds to wait; None for no limit.

        Raises:
            TimeoutError: the call has not ended in time.
            CancelledError: the call was cancelled, or its caller has ended.
        """
        error = self._outcome(timeout)[1]
        if isinstance(error, concurrent.futures.CancelledError) and error is self._failure:
            raise error
        return error

    def cancel(self) -> bool:
        """Cancel the call, and interrupt it if it runs; return False if it is done already."""
        if fork.is_child:
            return False
        return self._hub.drop(self)

    def done(self) -> bool:
        """Return whether the call has an outcome."""
        return self._over

    def running(self) -> bool:
        """Return False: only the client knows whether a worker has begun the call."""
        return False

    def cancelled(self) -> bool:
        """Return whether the call was cancelled."""
        return self._over and isinstance(self._failure, concurrent.futures.CancelledError)

    def add_done_callback(self, fn: Callable[[concurrent.futures.Future[Any]], object]) -> None:
        """Register a function that is called with the future when it is done.

        The function runs on the thread that serves calls, and must not wait for other calls.
        """
        if fork.is_child and not self._over:
            return
        if not self._hub.unless_over(self, lambda: super(Future, self).add_done_callback(fn)):
            fn(self)

    def __reduce__(self) -> Any:
        raise TypeError("a future belongs to the worker that submitted the call; pass its result instead")

    def _outcome(self, timeout: float | None) -> tuple[Any, BaseException | None]:
        if not self._over:
            awaiting: Awaiting[Future] = Awaiting(1)
            for_calls(self._hub, awaiting, [self], timeout)
            if not self._over:
                raise CallTimeoutError
        if self._failure is not None:
            return None, self._failure
        unpacked = self._unpacked
        if unpacked is None:
            answer = self._answer
            if answer is not None:
                try:
                    unpacked = unpack(answer)
                except CallError as error:
                    # The answer stays: a handler of a signal may have raised, or memory ran out.
                    return None, error
            # Another thread may have been faster: all threads get the same object.
            unpacked = self._unpacked = self._unpacked or unpacked
            self._answer = None
        return cast("tuple[Any, BaseException | None]", unpacked)

    def _has_raised(self) -> bool:
        """Return whether the call ended neither with a value nor with a cancel."""
        if self._failure is not None:
            return not isinstance(self._failure, concurrent.futures.CancelledError)
        # In this order: another thread may set the second and then remove the first.
        answer, unpacked = self._answer, self._unpacked
        if unpacked is not None:
            return unpacked[1] is not None
        return answer is not None and has_raised(answer)

    def _get_snapshot(self) -> tuple[bool, bool, Any, BaseException | None]:
        """Return the state that `asyncio.wrap_future` takes from Python 3.14 on."""
        if not self._over:
            return False, False, None, None
        if self.cancelled():
            return True, True, None, None
        value, error = self._outcome(None)
        return True, False, value, error


def _tell(future: Any) -> None:
    future._told = True
    future._hub.complete(future)


class DoneAndNotDone(NamedTuple):
    """The result of `wait`."""

    done: set[Future]
    not_done: set[Future]


def wait(futures: Iterable[Future], timeout: float | None = None, return_when: str = ALL_COMPLETED) -> DoneAndNotDone:
    """Wait for calls, like `concurrent.futures.wait`; this worker runs calls meanwhile.

    Args:
        futures: futures that `sky.submit` has returned.
        timeout: the most seconds to wait; None for no limit.
        return_when: `"ALL_COMPLETED"`, `"FIRST_COMPLETED"` or `"FIRST_EXCEPTION"`.

    Returns:
        Two sets of futures, `done` and `not_done`.

    Raises:
        ValueError: `return_when` has another value.
        TypeError: one of the futures is not from `sky.submit`.
    """
    if return_when not in (ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION):
        raise ValueError(f"return_when must be ALL_COMPLETED, FIRST_COMPLETED or FIRST_EXCEPTION, not {return_when!r}")
    known = _checked(futures)
    waiting = [future for future in known if not future._over]
    stop: Callable[[Future], bool] | None = None
    enough = not waiting
    if return_when == FIRST_COMPLETED:
        enough = len(waiting) < len(known) or not known
    elif return_when == FIRST_EXCEPTION:
        stop = Future._has_raised
        enough = enough or any(future._over and future._has_raised() for future in known)
    if not enough:
        needed = 1 if return_when == FIRST_COMPLETED else len(waiting)
        for_calls(waiting[0]._hub, Awaiting(needed, stop), waiting, timeout)
    done = {future for future in known if future._over}
    return DoneAndNotDone(done, known - done)


def as_completed(futures: Iterable[Future], timeout: float | None = None) -> Iterator[Future]:
    """Yield futures in the order in which they end, like `concurrent.futures.as_completed`.

    While it waits, this worker runs calls.

    Args:
        futures: futures that `sky.submit` has returned.
        timeout: seconds within which all must have ended; None for no limit.

    Raises:
        TimeoutError: some have not ended in time.
        TypeError: one of the futures is not from `sky.submit`.

    Example:
        for future in sky.as_completed([sky.submit(score, part) for part in parts]):
            print(future.result())
    """
    return _as_completed(_checked(futures), None if timeout is None else monotonic() + timeout)


def _as_completed(known: set[Future], deadline: float | None) -> Iterator[Future]:
    total = len(known)
    waiting = [future for future in known if not future._over]
    yield from known.difference(waiting)
    known.clear()
    if not waiting:
        return
    hub = waiting[0]._hub
    awaiting: Awaiting[Future] = Awaiting(1)
    left = set(waiting)
    del waiting
    try:
        hub.await_all(awaiting, left)
        while left:
            for_calls(hub, awaiting, (), None if deadline is None else deadline - monotonic())
            if not awaiting.done:
                raise CallTimeoutError(f"{len(left)} of {total} calls have not ended")
            yield _taken(awaiting, left)
    finally:
        # A caller that leaves early may come again, so remove what is left.
        if left:
            hub.await_no_more(awaiting, left)


def _taken(awaiting: Awaiting[Future], left: set[Future]) -> Future:
    """Return the next future that is done; the iterator keeps no reference to it."""
    future = awaiting.done.popleft()
    left.discard(future)
    return future


def _checked(futures: Iterable[Future]) -> set[Future]:
    known = set(futures)
    for future in known:
        if not isinstance(future, Future):
            kind = type(future).__qualname__
            raise TypeError(
                f"sky.wait and sky.as_completed take futures of sky.submit, not a {kind}; use the functions of "
                "concurrent.futures to wait for both"
            )
    return known
