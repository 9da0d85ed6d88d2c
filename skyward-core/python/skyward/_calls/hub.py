"""The calls of a worker's process: who has made which, and who waits for them."""

from __future__ import annotations

import signal
import threading
from _thread import get_ident
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from .. import _wire
from .._session import LostDescriptorsError
from .._values import Buffer
from . import serving, waiting
from .callers import Callers
from .channel import Channel
from .errors import CallError
from .frames import Awaiting, Frame
from .future import Future
from .late import Late
from .messages import Help

if TYPE_CHECKING:
    from ..worker import Worker
    from .fetching import Arrived
    from .store import Hold

LOST: Final = "the payload has closed descriptors of its worker, which calls need"
_LEAST_ROOM: Final = 1 << 20
"""Bytes of calls that may be on their way at least: the client acknowledges some of them only together."""
_CALLBACKS: Final = 2
"""So many times as much room have callbacks."""


class Hub(Callers):
    """All of it, under one lock."""

    def __init__(self, worker: Worker, path: str) -> None:
        """Listen, and start the thread that serves.

        Args:
            worker: the process's.
            path: where clients connect.

        Raises:
            OSError: nothing can listen there.
            RuntimeError: no thread can be started.
        """
        super().__init__(worker)
        self.helps: deque[tuple[Help, Buffer]] = deque()
        """Calls that the waiting main thread is to run."""
        self.calls: dict[int, Future] = {}
        """Those that have no outcome."""
        self.fetches: dict[int, Arrived] = {}
        """Files of the store that come from other nodes."""
        self.later: deque[Callable[[], None]] = deque()
        """What the serving thread is to do for those who must not wait for the lock."""
        self.late = Late(self.threads)
        self.serving = 0
        """The thread that serves."""
        self.lost = False
        self.max_frame = worker.session.max_frame
        self.room: Final = max(worker.retain_bytes, _LEAST_ROOM)
        """Bytes of calls that the client has not received, beyond which `submit` waits."""
        self._number = self._fetch = 0
        hello = [_wire.CALLS_HELLO, _wire.PROTOCOL, worker.pid, worker.generation, worker.rank]
        self.channel = Channel(
            path, hello, worker.generation, self.max_frame, self.lock, partial(serving.handle, self), self._do_later
        )
        thread = threading.Thread(target=serving.serve, args=(self,), name="skyward calls", daemon=True)
        # Signals are for the main thread: one that another takes does not end the main thread's system call.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            thread.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    # Any thread that runs code of a payload

    def submit(self, body: Buffer, options: dict[str, Any] | None, holds: Sequence[Hold] = ()) -> Future:
        """Submit a call; waits while the client has not received many bytes of those before it.

        Args:
            body: function and arguments.
            options: as the client gets them.
            holds: what of the store must stay until the call has its outcome.

        Raises:
            CallError: this is no place to submit one.
            CancelledError: its caller is over.
        """
        was = self.enter()
        try:
            while True:
                with self.lock:
                    frame = self._checked_caller()
                    if self.has_room(len(body)):
                        self._number += 1
                        future = Future(self, self._number, frame, holds)
                        self.calls[self._number] = frame.calls[self._number] = future
                        self.send(_wire.SUBMIT, self._number, frame.run, frame.help, options, body=body)
                        break
                waiting.for_room(self, frame, len(body))
            if self.lost:
                self.lose()
                raise CallError(LOST)
        finally:
            self.leave(was)
        return future

    def has_room(self, length: int) -> bool:
        """Whether a call of this length may be kept until the client has it. A callback cannot wait, and has more."""
        kept = self.channel.kept_bytes
        room = self.room * _CALLBACKS if get_ident() == self.serving else self.room
        return kept == 0 or kept + length <= room or self.lost

    def wait(self, awaiting: Awaiting, futures: Iterable[Future], timeout: float | None) -> None:
        """Wait until it is ready, or for so many seconds; the main thread helps meanwhile.

        Args:
            awaiting: what is waited for.
            futures: what belongs to it for this wait only.
            timeout: seconds; None: as long as it takes.
        """
        deadline = None if timeout is None else monotonic() + timeout
        was = self.enter()
        try:
            with self.lock:
                self._await_all(awaiting, futures)
            if not awaiting.ready:
                waiting.until(self, awaiting, deadline)
            with self.lock:
                self._await_no_more(awaiting, futures)
        finally:
            self.leave(was)

    def await_all(self, awaiting: Awaiting, futures: Iterable[Future]) -> None:
        """Have these futures tell it when they are over; those that are, at once."""
        was = self.enter()
        try:
            with self.lock:
                self._await_all(awaiting, futures)
        finally:
            self.leave(was)

    def await_no_more(self, awaiting: Awaiting, futures: Iterable[Future]) -> None:
        """Nobody waits any more for those of these that are not over."""
        if self.lock._is_owned():
            # A finalizer. What the futures go on referring to goes with them.
            return
        was = self.enter()
        try:
            with self.lock:
                self._await_no_more(awaiting, futures)
        finally:
            self.leave(was)

    def tell(self, future: Future) -> None:
        """A future is over: wake who waits for it."""
        with self.lock:
            future._over = True
            while future._awaited:
                # For want of memory this may fail half way, and is done again.
                future._awaited[-1].add(future)
                future._awaited.pop()

    def unless_over(self, future: Future, action: Callable[[], object]) -> bool:
        """Do something with a future that is not over; whether it was done."""
        was = self.enter()
        try:
            if future._over:
                return False
            action()
            return True
        finally:
            self.leave(was)

    def drop(self, future: Future) -> bool:
        """Give a call up; False if it is over."""
        if self.lock._is_owned():
            self.drop_later((future,))
            return not future._over
        was = self.enter()
        try:
            with self.lock:
                known = self.forget(future)
                if known and not future._frame.ended:
                    self.send(_wire.DROP, future._call)
            if known:
                future._settle(None, CancelledError("the call was cancelled"))
            return known
        finally:
            self.leave(was)

    def drop_later(self, futures: Iterable[Future]) -> None:
        """The same for whoever must not take locks."""
        self.later.extend(partial(serving.drop, self, future) for future in futures)
        with suppress(LostDescriptorsError):
            self.channel.nudge()

    # The main thread

    def end_run(self) -> None:
        """The run is over: what it has left is cancelled."""
        with self.lock:
            for frame in self.stack:
                self._end(frame)
            self.stack.clear()
            self.refuse_helps()
            left = [*self.calls.values()]
            self.calls.clear()
            for aside in self.asides.values():
                self._end(aside)
        for aside in [*self.asides.values()]:
            aside.cancel()
        if left:
            self.drop_later(left)

    def give_up(self, frame: Frame) -> None:
        """It is interrupted: it gets no more outcomes, also where its code keeps the interrupt for itself."""
        frame.interrupted = True
        self.drop_later([*frame.calls.values()])

    # With the lock held

    def _checked_caller(self) -> Frame:
        if self.lost:
            raise CallError(LOST)
        frame = self.caller()
        if frame.depth >= _wire.DEEPEST:
            raise CallError(f"a call may have {_wire.DEEPEST} callers above it, and this one would have more")
        if frame.ended or frame.interrupted:
            raise CancelledError("what submits this call was cancelled, or is over")
        return frame

    def _await_all(self, awaiting: Awaiting, futures: Iterable[Future]) -> None:
        for future in futures:
            if future._over:
                awaiting.add(future)
            else:
                future._awaited.append(awaiting)

    def _await_no_more(self, awaiting: Awaiting, futures: Iterable[Future]) -> None:
        for future in futures:
            with suppress(ValueError):
                future._awaited.remove(awaiting)

    def begin_fetch(self, arrived: Arrived) -> int:
        """The number of a file of the store that is to come from another node."""
        self._fetch += 1
        self.fetches[self._fetch] = arrived
        return self._fetch

    def forget(self, future: Future) -> bool:
        """A call has its outcome, or gets none; False if that was so before."""
        future._frame.calls.pop(future._call, None)
        return self.calls.pop(future._call, None) is not None

    def _end(self, frame: Frame) -> list[Future]:
        """Forget the calls of a caller that is over; they are still to be settled."""
        frame.ended = True
        left = [*frame.calls.values()]
        frame.calls.clear()
        return left

    def end_frame(self, frame: Frame, number: int, *fields: Any, body: Buffer) -> None:
        """A helped call is over: forget what it has left, and answer."""
        with self.lock:
            left = self._end(frame)
            for future in left:
                self.calls.pop(future._call, None)
            self.send(number, frame.help, *fields, body=body)
        if left:
            self.drop_later(left)

    def refuse_helps(self) -> None:
        """Refuse what the main thread was to help with: it waits no more."""
        while self.helps:
            self.send(_wire.REFUSE, self.helps.popleft()[0].help)

    def send(self, number: int, *fields: Any, body: Buffer = b"", counts: bool = True) -> None:
        """Send a message, unless the payload has closed what that takes: `lost` says so then."""
        try:
            self.channel.send(number, *fields, body=body, counts=counts)
        except LostDescriptorsError:
            self.lost = True

    # The thread that serves, and whoever finds that calls are lost

    def lose(self) -> None:
        """The payload has closed what calls need: the worker ends with the task, which must not wait for ever."""
        with self.lock:
            self.lost = self.worker.session.lost = True
            left = [*self.calls.values()]
            self.calls.clear()
        for future in left:
            future._settle(None, CallError(LOST))
        self.wake_main()

    def _do_later(self) -> None:
        while self.later:
            self.later.popleft()()

    # The child of a fork

    def detach(self) -> None:
        """Close everything."""
        self.channel.detach()
