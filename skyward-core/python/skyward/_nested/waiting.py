"""Waits for calls, or for room to submit them."""

from __future__ import annotations

import threading
from _thread import get_ident
from collections.abc import Iterable
from concurrent.futures import CancelledError
from time import monotonic
from typing import Any, Final

from .._calls.errors import CallError
from .._core import wire
from .._sky.notices import notices
from . import helping, locks
from .awaiting import Awaiting
from .frames import Frame, Pending
from .hub import Hub

_LOOK: Final = 0.02
"""Seconds between two checks of a thread that waits for room."""


def for_calls(hub: Hub, awaiting: Awaiting[Any], futures: Iterable[Pending], timeout: float | None) -> None:
    """Wait until a condition holds, or for `timeout` seconds.

    The main thread helps meanwhile if there is no timeout and it holds no lock.

    Args:
        hub: the hub of the process.
        awaiting: the condition.
        futures: futures that belong to the condition for this wait only.
        timeout: the most seconds to wait; None for no limit.
    """
    hub.unless_forked()
    deadline = None if timeout is None or timeout > threading.TIMEOUT_MAX else monotonic() + timeout
    was = hub.enter()
    try:
        with hub.lock:
            hub.begin_await(awaiting, futures)
        try:
            if not awaiting.ready:
                _until(hub, awaiting, deadline)
        finally:
            with hub.lock:
                hub.end_await(awaiting, futures)
    finally:
        hub.leave(was)


def _until(hub: Hub, awaiting: Awaiting[Any], deadline: float | None) -> None:
    """Wait until the condition holds or the deadline is over.

    The main thread helps meanwhile if there is no deadline, which a helped call might overrun.

    Raises:
        CallError: called by a callback.
    """
    me = get_ident()
    if me == hub.main:
        _on_main(hub, awaiting, deadline)
    elif me == hub.serving:
        raise CallError(
            "a callback of a future must not wait for another future: it would block the thread that ends it"
        )
    else:
        _elsewhere(hub, awaiting, deadline)


def for_room(hub: Hub, frame: Frame, length: int) -> None:
    """Wait until enough calls are acknowledged that a call of this length may be sent.

    Raises:
        CallError: called by a callback, which cannot wait.
        CancelledError: the caller was cancelled, or has ended.
        KeyboardInterrupt: the task or the call was cancelled.
    """
    me = get_ident()
    if me == hub.serving:
        raise CallError(
            f"the client has not received {hub.channel.kept_bytes} bytes of calls that this worker has submitted, and "
            "a callback cannot wait for that; submit fewer calls from callbacks, or submit them from the payload itself"
        )
    aside = hub.aside()
    look: Awaiting[Any] = Awaiting(1)
    while not hub.has_room(length):
        if frame.ended or frame.interrupted or (aside is not None and aside.cancelled):
            raise CancelledError("the code that submits this call was cancelled, or has ended")
        if me == hub.main and (hub.runner.missed or notices.pending):
            hub.worker.look_while_waiting()
        look.sleep(_LOOK)


class _MainWait:
    """A wait of the main thread, as the client knows it: one `Wait`, and then one `Waited`.

    The client does not know of a wait in which the thread does not help.
    """

    def __init__(self, hub: Hub, awaiting: Awaiting[Any], helps: bool) -> None:
        self._hub = hub
        self._awaiting = awaiting
        awaiting.helps = helps
        self._outer = hub.main_wait
        self._is_told = False

    def begin(self) -> None:
        hub = self._hub
        with hub.lock:
            hub.root()
            frame = hub.stack[-1]
            hub.main_wait = self._awaiting
            if not self._awaiting.helps:
                return
            sent = hub.channel.sent
            try:
                hub.send(wire.WAIT, frame.run, frame.help)
            finally:
                self._is_told = hub.channel.sent > sent

    def end(self) -> None:
        """End the wait. If this raises, it may be called again."""
        hub = self._hub
        with hub.lock:
            hub.main_wait = self._outer
            hub.refuse_helps()
            if self._is_told:
                sent = hub.channel.sent
                try:
                    hub.send(wire.WAITED)
                finally:
                    self._is_told = hub.channel.sent == sent


def _on_main(hub: Hub, awaiting: Awaiting[Any], deadline: float | None) -> None:
    """Wait on the main thread, whose runner is not busy.

    Without a deadline, run helped calls, unless they could wait for a lock that this thread holds.
    """
    wait = _MainWait(hub, awaiting, helps=deadline is None and not locks.are_held())
    # A signal handler of the payload may raise anywhere here.
    try:
        wait.begin()
        while not awaiting.ready:
            if hub.helps:
                timer = helping.Timer()
                try:
                    helping.on_main(hub, awaiting)
                finally:
                    timer.go_on()
                # The cancel of a call may concern code around it too, so check again. A signal may
                # set this as well.
                if hub.is_doomed():
                    hub.runner.missed = True
                continue
            if hub.runner.missed or notices.pending:
                hub.worker.look_while_waiting()
                if awaiting.ready:
                    break
            left = -1.0 if deadline is None else deadline - monotonic()
            if deadline is not None and left <= 0:
                break
            if hub.lost:
                hub.lose()
                break
            awaiting.sleep(left)
    finally:
        try:
            wait.end()
        except BaseException:
            # Otherwise the client would consider this thread as waiting.
            wait.end()
            raise


def _elsewhere(hub: Hub, awaiting: Awaiting[Any], deadline: float | None) -> None:
    """Wait on another thread than the main thread."""
    aside = hub.aside()
    if aside is not None:
        aside.waits = awaiting
    try:
        while not awaiting.ready:
            if hub.lost:
                hub.lose()
                return
            if aside is not None and aside.cancelled and not aside.interrupted:
                return  # `leave` raises the interrupt
            left = -1.0 if deadline is None else deadline - monotonic()
            if deadline is not None and left <= 0:
                return
            awaiting.sleep(left)
    finally:
        if aside is not None:
            aside.waits = None
