"""Futures of calls, and waiting for several of them."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from .. import _fork
from .._values import Buffer
from .answers import has_raised, unpack
from .errors import CallError, CallTimeoutError
from .frames import Awaiting, Frame

if TYPE_CHECKING:
    from .hub import Hub
    from .store import Hold

ALL_COMPLETED = concurrent.futures.ALL_COMPLETED
FIRST_COMPLETED = concurrent.futures.FIRST_COMPLETED
FIRST_EXCEPTION = concurrent.futures.FIRST_EXCEPTION
_LEAKED: Final = 0.5
"""Seconds after which a future's lock may be one that an interrupt has left locked for good."""


class Future(concurrent.futures.Future[Any]):
    """The outcome of a call, as it will be.

    While the main thread of a worker waits in `result` or `exception`, the worker runs calls of this caller. The value
    is unpickled by the thread that asks for it first.
    """

    def __init__(self, hub: Hub, call: int, frame: Frame, holds: Sequence[Hold]) -> None:
        """Await a call.

        Args:
            hub: that of the process.
            call: the call's number.
            frame: who has made it.
            holds: what of the store must stay until the outcome.
        """
        super().__init__()
        self.micros = 0
        """How long the call ran, in microseconds."""
        self._hub = hub
        self._call = call
        self._frame = frame
        self._holds = holds
        self._over = False
        self._told = False
        """The base class has called the callbacks, of which the first is `_tell`."""
        self._answer: Buffer | None = None
        self._failure: BaseException | None = None
        self._unpacked: tuple[Any, BaseException | None] | None = None
        self._awaited: list[Awaiting] = []
        # The first of the callbacks, so that whoever waits does not wait for the others.
        super().add_done_callback(_tell)

    def result(self, timeout: float | None = None) -> Any:
        """The value that the function has returned; waits for it, and helps meanwhile.

        Args:
            timeout: seconds to wait at most.

        Raises:
            TimeoutError: it has not ended in time.
            CancelledError: it was cancelled, or its caller has ended.
            WorkerLost: the workers that ran it have ended.
            RemoteError: it has raised what cannot be raised here.
            CallError: it has no answer for another reason.
            BaseException: what the function has raised, with the traceback of its worker as the cause.
        """
        value, error = self._outcome(timeout)
        if error is not None:
            try:
                raise error
            finally:
                # The traceback of the error refers to this frame.
                del self, error
        return value

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What the function has raised, None if it has returned; waits, and helps meanwhile.

        Args:
            timeout: seconds to wait at most.

        Raises:
            TimeoutError: it has not ended in time.
            CancelledError: it was cancelled, or its caller has ended.
        """
        error = self._outcome(timeout)[1]
        if isinstance(error, concurrent.futures.CancelledError) and error is self._failure:
            raise error
        return error

    def cancel(self) -> bool:
        """Give the call up: whoever runs it is interrupted. False if it is over."""
        if _fork.is_child:
            return False
        return self._hub.drop(self)

    def done(self) -> bool:
        """Whether it is over."""
        return self._over

    def running(self) -> bool:
        """False: only the client knows whether a worker has begun."""
        return False

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self._over and isinstance(self._failure, concurrent.futures.CancelledError)

    def add_done_callback(self, fn: Callable[[concurrent.futures.Future[Any]], object]) -> None:
        """Have a function called with the future when it is over: on the thread of calls, which must not wait."""
        if _fork.is_child and not self._over:
            return
        if not self._hub.unless_over(self, lambda: super(Future, self).add_done_callback(fn)):
            fn(self)

    def __reduce__(self) -> Any:
        raise TypeError("a future belongs to the worker that has submitted the call; pass its result")

    def _outcome(self, timeout: float | None) -> tuple[Any, BaseException | None]:
        if not self._over:
            if _fork.is_child:
                raise CallError("a process that a payload has forked gets no outcomes of calls")
            awaiting = Awaiting(1)
            self._hub.wait(awaiting, [self], timeout)
            if not self._over:
                raise CallTimeoutError
        if self._failure is not None:
            return None, self._failure
        unpacked = self._unpacked
        if unpacked is None:
            answer = self._answer
            if answer is not None:
                unpacked = unpack(answer)
            # Another thread may have been faster: all get the same object.
            unpacked = self._unpacked = self._unpacked or unpacked
            self._answer = None
        return cast("tuple[Any, BaseException | None]", unpacked)

    def _has_raised(self) -> bool:
        """Whether it has ended otherwise than by a value or a cancel."""
        if self._failure is not None:
            return not isinstance(self._failure, concurrent.futures.CancelledError)
        if self._unpacked is not None:
            return self._unpacked[1] is not None
        return self._answer is not None and has_raised(self._answer)

    def _settle(self, answer: Buffer | None, failure: BaseException | None) -> None:
        """Take the outcome. The lock of the calls is not held, as this calls what others have registered."""
        self._answer, self._failure = answer, failure
        self._holds = ()
        late = self._hub.late
        if not self._finish(0 if late.is_busy else _LEAKED):
            # Nobody who waits here needs the lock, nor do other futures have to wait for it.
            self._hub.tell(self)
            late.add(self)

    def _finish(self, seconds: float) -> bool:
        """Tell the base class, and with it callbacks; False if somebody holds the lock for so long."""
        # The interrupt of a thread within `concurrent.futures.wait` can leave this locked.
        if not self._condition.acquire(timeout=seconds):
            return False
        self._condition.release()
        failure = self._failure
        try:
            if isinstance(failure, concurrent.futures.CancelledError):
                super().cancel()
                self.set_running_or_notify_cancel()
            elif failure is not None:
                self.set_exception(failure)
            else:
                self.set_result(None)
        finally:
            if not self._told:
                # It has failed half way, for want of memory.
                self._invoke_callbacks()  # type: ignore[attr-defined]
        return True


def _tell(future: Any) -> None:
    future._told = True
    future._hub.tell(future)


class DoneAndNotDone(NamedTuple):
    """What `wait` returns."""

    done: set[Future]
    not_done: set[Future]


def wait(futures: Iterable[Future], timeout: float | None = None, return_when: str = ALL_COMPLETED) -> DoneAndNotDone:
    """Wait for calls, as `concurrent.futures.wait` does, and help meanwhile.

    Args:
        futures: what `sky.submit` has returned.
        timeout: seconds to wait at most.
        return_when: `"ALL_COMPLETED"`, `"FIRST_COMPLETED"` or `"FIRST_EXCEPTION"`.

    Returns:
        Two sets, `done` and `not_done`.
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
        _hub_of(waiting).wait(Awaiting(needed, stop), waiting, timeout)
    done = {future for future in known if future._over}
    return DoneAndNotDone(done, known - done)


def as_completed(futures: Iterable[Future], timeout: float | None = None) -> Iterator[Future]:
    """The futures in the order in which they end, as `concurrent.futures.as_completed`; helps while it waits.

    Args:
        futures: what `sky.submit` has returned.
        timeout: seconds until all must have ended.

    Raises:
        TimeoutError: they have not.
    """
    return _as_completed(_checked(futures), None if timeout is None else monotonic() + timeout)


def _as_completed(known: set[Future], deadline: float | None) -> Iterator[Future]:
    total = len(known)
    waiting = [future for future in known if not future._over]
    yield from known.difference(waiting)
    known.clear()
    if not waiting:
        return
    hub = _hub_of(waiting)
    awaiting = Awaiting(1)
    left = set(waiting)
    del waiting
    try:
        hub.await_all(awaiting, left)
        while left:
            hub.wait(awaiting, (), None if deadline is None else deadline - monotonic())
            if not awaiting.done:
                raise CallTimeoutError(f"{len(left)} of {total} calls have not ended")
            yield _taken(awaiting, left)
    finally:
        # Whoever leaves early may come again, and again.
        if left:
            hub.await_no_more(awaiting, left)


def _taken(awaiting: Awaiting, left: set[Future]) -> Future:
    """The next one that is over. The iterator keeps no reference to it."""
    future = awaiting.done.popleft()
    left.discard(future)
    return future


def _hub_of(futures: list[Future]) -> Hub:
    if _fork.is_child:
        raise CallError("a process that a payload has forked gets no outcomes of calls")
    return futures[0]._hub


def _checked(futures: Iterable[Future]) -> set[Future]:
    known = set(futures)
    for future in known:
        if not isinstance(future, Future):
            kind = type(future).__qualname__
            raise TypeError(
                f"this waits for what sky.submit returns, not for a {kind}; use concurrent.futures for both"
            )
    return known
