"""The calls of a worker's process: their callers, and the threads that wait for them."""

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

from .. import _fork, _seeds, _wire
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

LOST: Final = "the payload has closed descriptors of its worker, which are needed for calls"
_LEAST_ROOM: Final = 1 << 20
"""The least number of bytes of calls that may be unacknowledged: the client acknowledges several at
once.
"""
_CALLBACKS: Final = 2
"""Callbacks may use this many times as much room, because they cannot wait."""


class Hub(Callers):
    """All state of a process's calls, under one lock."""

    def __init__(self, worker: Worker, path: str) -> None:
        """Listen, and start the thread that serves.

        Args:
            worker: the worker of this process.
            path: the socket's path, at which clients connect.

        Raises:
            OSError: the path cannot be listened at.
            RuntimeError: no thread can be started.
        """
        super().__init__(worker)
        self.helps: deque[tuple[Help, Buffer]] = deque()
        """Helped calls that wait for the main thread."""
        self.calls: dict[int, Future] = {}
        """The calls without an outcome, by number."""
        self.fetches: dict[int, Arrived] = {}
        """The files of the store that are being fetched from other nodes, by number."""
        self.later: deque[Callable[[], None]] = deque()
        """Actions for the serving thread, queued by code that must not wait for the lock."""
        self.late = Late(self.threads)
        self.serving = 0
        """The id of the thread that serves."""
        self.lost = False
        self.max_frame_bytes = worker.session.max_frame_bytes
        self.room: Final = max(worker.retain_bytes, _LEAST_ROOM)
        """Bytes of unacknowledged calls from which on `submit` waits."""
        self._number = self._fetch = 0
        hello = [_wire.CALLS_HELLO, _wire.PROTOCOL, worker.pid, worker.generation, worker.rank]
        self.channel = Channel(
            path,
            hello,
            worker.generation,
            self.max_frame_bytes,
            self.lock,
            partial(serving.handle, self),
            self._do_later,
            worker.on_quiet,
        )
        thread = threading.Thread(target=serving.serve, args=(self,), name="skyward calls", daemon=True)
        # The main thread must receive all signals: otherwise its system calls would not be
        # interrupted.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            thread.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    # Any thread that runs code of a payload

    def submit(self, body: Buffer, options: dict[str, Any] | None, holds: Sequence[Hold] = ()) -> Future:
        """Submit a call; wait while too many bytes of earlier calls are not acknowledged.

        Args:
            body: the pickled function and arguments.
            options: the options, as the client expects them.
            holds: the files of the store that must stay until the outcome.

        Raises:
            CallError: no call can be submitted here.
            CancelledError: the caller was cancelled, or has ended.
        """
        future: Future | None = None
        try:
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
        except BaseException:
            if future is not None:
                # The caller gets no future, and may submit the call again, so this one must not
                # run, although its message may be kept.
                self.drop_later((future,))
            raise

    def next_seed(self) -> int | None:
        """Return the seed of the next call that this thread makes; None without a seed."""
        was = self.enter()
        try:
            with self.lock:
                frame = self._checked_caller()
                if frame.seed is None:
                    return None
                frame.seeded += 1
                return _seeds.follow(frame.seed, frame.seeded)
        finally:
            self.leave(was)

    def _unless_forked(self) -> None:
        if _fork.is_child:
            raise CallError("a process that a payload has forked cannot wait for calls; wait in the payload's process")

    def has_room(self, length: int) -> bool:
        """Return whether a call of this length may be sent now; callbacks have more room."""
        kept = self.channel.kept_bytes
        room = self.room * _CALLBACKS if get_ident() == self.serving else self.room
        return kept == 0 or kept + length <= room or self.lost

    def wait(self, awaiting: Awaiting, futures: Iterable[Future], timeout: float | None) -> None:
        """Wait until a condition holds, or for `timeout` seconds.

        The main thread helps meanwhile if there is no timeout.

        Args:
            awaiting: the condition.
            futures: futures that belong to the condition for this wait only.
            timeout: the most seconds to wait; None for no limit.
        """
        self._unless_forked()
        deadline = None if timeout is None or timeout > threading.TIMEOUT_MAX else monotonic() + timeout
        was = self.enter()
        try:
            with self.lock:
                self._await_all(awaiting, futures)
            try:
                if not awaiting.ready:
                    waiting.until(self, awaiting, deadline)
            finally:
                with self.lock:
                    self._await_no_more(awaiting, futures)
        finally:
            self.leave(was)

    def await_all(self, awaiting: Awaiting, futures: Iterable[Future]) -> None:
        """Report futures to the condition when they are done; if they are done, at once."""
        self._unless_forked()
        was = self.enter()
        try:
            with self.lock:
                self._await_all(awaiting, futures)
        finally:
            self.leave(was)

    def await_no_more(self, awaiting: Awaiting, futures: Iterable[Future]) -> None:
        """Stop reporting to the condition those futures that are not done."""
        if self.lock._is_owned() or _fork.is_child:
            # Called by a finalizer: the references in the futures disappear with the futures.
            return
        was = self.enter()
        try:
            with self.lock:
                self._await_no_more(awaiting, futures)
        finally:
            self.leave(was)

    def complete(self, future: Future) -> None:
        """Mark a future as done, and wake the threads that wait for it."""
        with self.lock:
            future._over = True
            while future._awaited:
                # If memory runs out here half way, the loop is run again.
                future._awaited[-1].add(future)
                future._awaited.pop()

    def unless_over(self, future: Future, action: Callable[[], object]) -> bool:
        """Run an action unless the future is done; return whether it ran."""
        was = self.enter()
        try:
            if future._over:
                return False
            action()
            return True
        finally:
            self.leave(was)

    def drop(self, future: Future) -> bool:
        """Cancel a call; return False if it is done."""
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
        """Cancel calls for code that must not take locks."""
        self.later.extend(partial(serving.drop, self, future) for future in futures)
        with suppress(LostDescriptorsError):
            self.channel.nudge()

    # The main thread

    def end_run(self) -> None:
        """End the run: cancel the calls that it has left."""
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
        """Cancel the calls of an interrupted caller, even if its code suppresses the interrupt."""
        frame.interrupted = True
        self.drop_later([*frame.calls.values()])

    # With the lock held

    def _checked_caller(self) -> Frame:
        if self.lost:
            raise CallError(LOST)
        frame = self.caller()
        if frame.depth >= _wire.DEEPEST:
            raise CallError(
                f"a call may have at most {_wire.DEEPEST} callers above it, and this one would have more: check the "
                "function for an endless recursion"
            )
        if frame.ended or frame.interrupted:
            raise CancelledError("the code that submits this call was cancelled, or has ended")
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
        """Return the number for a new fetch of a file from another node."""
        self._fetch += 1
        self.fetches[self._fetch] = arrived
        return self._fetch

    def forget(self, future: Future) -> bool:
        """Forget a call; return False if it was forgotten before."""
        future._frame.calls.pop(future._call, None)
        return self.calls.pop(future._call, None) is not None

    def _end(self, frame: Frame) -> list[Future]:
        """Forget the calls of a caller that has ended, and return them to be settled."""
        frame.ended = True
        left = [*frame.calls.values()]
        frame.calls.clear()
        return left

    def end_frame(self, frame: Frame, number: int, *fields: Any, body: Buffer) -> None:
        """End a helped call: forget the calls that it has left, and send its answer.

        If this raises, it may be called again: it sends one answer.
        """
        with self.lock:
            left = self._end(frame)
            for future in left:
                self.calls.pop(future._call, None)
            if not frame.answered:
                sent = self.channel.sent
                try:
                    self.send(number, frame.help, *fields, body=body)
                finally:
                    frame.answered = self.channel.sent > sent
        if left:
            self.drop_later(left)

    def answer_waiting(self, waiting: tuple[Help, Buffer], number: int, *fields: Any, body: Buffer = b"") -> None:
        """Answer a helped call that waits for the main thread, which will not run it."""
        sent = self.channel.sent
        try:
            self.send(number, waiting[0].help, *fields, body=body)
        finally:
            if self.channel.sent > sent:
                self.helps.remove(waiting)

    def refuse_helps(self) -> None:
        """Refuse all helped calls that wait for the main thread, because it waits no longer."""
        while self.helps:
            self.answer_waiting(self.helps[0], _wire.REFUSE)

    def send(self, number: int, *fields: Any, body: Buffer = b"", counts: bool = True) -> None:
        """Send a message; set `lost` if the payload has closed the descriptors for that."""
        try:
            self.channel.send(number, *fields, body=body, counts=counts)
        except LostDescriptorsError:
            # The worker must end after the task, even if nothing waits for a call any more.
            self.lost = self.worker.session.lost = True

    # The thread that serves, and code that finds that calls are lost

    def lose(self) -> None:
        """Fail all calls, because the payload has closed descriptors that calls need.

        The worker ends after the task, and the task must not wait forever.
        """
        with self.lock:
            self.lost = self.worker.session.lost = True
            left = [*self.calls.values()]
            self.calls.clear()
        for future in left:
            future._settle(None, CallError(LOST))
        self.wake_main()

    def _do_later(self) -> None:
        while self.later:
            action = self.later.popleft()
            try:
                action()
            except MemoryError:
                self.later.appendleft(action)
                raise

    # The child of a fork

    def detach(self) -> None:
        """Close everything."""
        self.channel.detach()
