"""The calls of a worker's process: their callers, and the threads that wait for them."""

from __future__ import annotations

import signal
import threading
from _thread import get_ident
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, Final

from .._calls.errors import CallError
from .._core import fork, wire
from .._core.complaint import complain
from .._libraries import seeds
from .._tasks.session import LostDescriptorsError
from .._values.codec import Buffer
from .awaiting import Awaiting
from .callers import Callers
from .channel import Channel
from .frames import Frame, Pending, check_depth
from .host import Host
from .late import Late
from .messages import Help, Numbered

Arrived = SimpleQueue["Buffer | None"]
"""The pieces of one file of another node's store, in order; None if the file does not exist."""

LOST: Final = "the payload has closed descriptors of its worker, which are needed for calls"
_LEAST_ROOM: Final = 1 << 20
"""The least number of bytes of calls that may be unacknowledged: the client acknowledges several at
once.
"""
_LEAKED: Final = 0.5
"""Seconds after which a future's lock may be locked for good, because of an interrupt."""
_CALLBACKS: Final = 2
"""Callbacks may use this many times as much room, because they cannot wait."""


class Hub(Callers):
    """All state of a process's calls, under one lock."""

    def __init__(
        self,
        worker: Host,
        path: str,
        handle: Callable[[Hub, Numbered, Buffer], None],
        serve: Callable[[Hub], None],
    ) -> None:
        """Listen, and start the thread that serves.

        Args:
            worker: the worker of this process.
            path: the socket's path, at which clients connect.
            handle: handles a message of the client.
            serve: serves on the thread, for as long as the process lives.

        Raises:
            OSError: the path cannot be listened at.
            RuntimeError: no thread can be started.
        """
        super().__init__(worker)
        self.helps: deque[tuple[Help, Buffer]] = deque()
        """Helped calls that wait for the main thread."""
        self.calls: dict[int, Pending] = {}
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
        self.last_call = self._fetch = 0
        """The number of the last call that was submitted."""
        hello = [wire.CALLS_HELLO, wire.PROTOCOL, worker.pid, worker.generation, worker.rank]
        self.channel = Channel(
            path,
            hello,
            worker.generation,
            self.max_frame_bytes,
            self.lock,
            partial(handle, self),
            self._do_later,
            worker.on_quiet,
        )
        thread = threading.Thread(target=serve, args=(self,), name="skyward calls", daemon=True)
        # The main thread must receive all signals: otherwise its system calls would not be
        # interrupted.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            thread.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    # Any thread that runs code of a payload

    def next_seed(self) -> int | None:
        """Return the seed of the next call that this thread makes; None without a seed."""
        was = self.enter()
        try:
            with self.lock:
                frame = self.checked_caller()
                if frame.seed is None:
                    return None
                frame.seeded += 1
                return seeds.follow(frame.seed, frame.seeded)
        finally:
            self.leave(was)

    def unless_forked(self) -> None:
        if fork.is_child:
            raise CallError("a process that a payload has forked cannot wait for calls; wait in the payload's process")

    def has_room(self, length: int) -> bool:
        """Return whether a call of this length may be sent now; callbacks have more room."""
        kept = self.channel.kept_bytes
        room = self.room * _CALLBACKS if get_ident() == self.serving else self.room
        return kept == 0 or kept + length <= room or self.lost

    def await_all(self, awaiting: Awaiting[Any], futures: Iterable[Pending]) -> None:
        """Report futures to the condition when they are done; if they are done, at once."""
        self.unless_forked()
        was = self.enter()
        try:
            with self.lock:
                self.begin_await(awaiting, futures)
        finally:
            self.leave(was)

    def await_no_more(self, awaiting: Awaiting[Any], futures: Iterable[Pending]) -> None:
        """Stop reporting to the condition those futures that are not done."""
        if self.lock._is_owned() or fork.is_child:
            # Called by a finalizer: the references in the futures disappear with the futures.
            return
        was = self.enter()
        try:
            with self.lock:
                self.end_await(awaiting, futures)
        finally:
            self.leave(was)

    def complete(self, future: Pending) -> None:
        """Mark a future as done, and wake the threads that wait for it."""
        with self.lock:
            future._over = True
            while future._awaited:
                # If memory runs out here half way, the loop is run again.
                future._awaited[-1].add(future)
                future._awaited.pop()

    def unless_over(self, future: Pending, action: Callable[[], object]) -> bool:
        """Run an action unless the future is done; return whether it ran."""
        was = self.enter()
        try:
            if future._over:
                return False
            action()
            return True
        finally:
            self.leave(was)

    def drop(self, future: Pending) -> bool:
        """Cancel a call; return False if it is done."""
        if self.lock._is_owned():
            self.drop_later((future,))
            return not future._over
        was = self.enter()
        try:
            with self.lock:
                known = self.forget(future)
                if known and not future._frame.ended:
                    self.send(wire.DROP, future._call)
            if known:
                self.settle(future, None, CancelledError("the call was cancelled"))
            return known
        finally:
            self.leave(was)

    def drop_later(self, futures: Iterable[Pending]) -> None:
        """Cancel calls for code that must not take locks."""
        self.later.extend(partial(self._drop_served, future) for future in futures)
        with suppress(LostDescriptorsError):
            self.channel.nudge()

    def settle(self, future: Pending, answer: Buffer | None, failure: BaseException | None) -> None:
        """Set the outcome. This runs callbacks of the payload, so the lock must not be held."""
        future._answer, future._failure = answer, failure
        future.answer_bytes = 0 if answer is None else len(answer)
        future._holds = ()
        late = self.late
        if not future._finish(0 if late.is_busy else _LEAKED):
            # Threads that wait here do not need that lock, and other futures must not wait for it
            # either.
            self.complete(future)
            late.add(future)

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

    def checked_caller(self) -> Frame:
        if self.lost:
            raise CallError(LOST)
        frame = self.caller()
        check_depth(frame.depth)
        if frame.ended or frame.interrupted:
            raise CancelledError("the code that submits this call was cancelled, or has ended")
        return frame

    def begin_await(self, awaiting: Awaiting[Any], futures: Iterable[Pending]) -> None:
        for future in futures:
            if future._over:
                awaiting.add(future)
            else:
                future._awaited.append(awaiting)

    def end_await(self, awaiting: Awaiting[Any], futures: Iterable[Pending]) -> None:
        for future in futures:
            with suppress(ValueError):
                future._awaited.remove(awaiting)

    def begin_fetch(self, arrived: Arrived) -> int:
        """Return the number for a new fetch of a file from another node."""
        self._fetch += 1
        self.fetches[self._fetch] = arrived
        return self._fetch

    def forget(self, future: Pending) -> bool:
        """Forget a call; return False if it was forgotten before."""
        future._frame.calls.pop(future._call, None)
        return self.calls.pop(future._call, None) is not None

    def _end(self, frame: Frame) -> list[Pending]:
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
            self.answer_waiting(self.helps[0], wire.REFUSE)

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
            self.settle(future, None, CallError(LOST))
        self.wake_main()

    def call_back(self, future: Pending, answer: Buffer | None, failure: BaseException | None) -> None:
        """Settle a future; calls that its callbacks submit belong to the future's caller."""
        me = get_ident()
        if not future._over:
            self.threads[me] = future._frame
            try:
                self.settle(future, answer, failure)
            except BaseException as error:
                with suppress(Exception):
                    complain(f"a callback of a future raised {error!r}")
            finally:
                self.threads.pop(me, None)
        if not future._over or future._awaited:
            self.complete(future)

    def _drop_served(self, future: Pending) -> None:
        """Cancel a call, for code that must not wait for the lock."""
        if future._frame.ended:
            self.call_back(future, None, CancelledError("the caller has ended"))
            return
        with suppress(CallError):
            self.drop(future)

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
