"""Handle the client's messages about calls, on the thread that serves them.

A message counts as received when it was handled. If handling fails half way, because memory ran
out, the connection ends, and the message comes again over the next one. So a handler that fails
restores what it has changed, or is harmless when it runs again.
"""

from __future__ import annotations

import signal
from _thread import get_ident
from contextlib import suppress
from typing import Any

import msgspec

from .._calls.errors import CallError, from_failure
from .._core import wire
from .._tasks.session import LostDescriptorsError
from .._values.codec import Buffer
from . import helping
from .hub import Hub
from .messages import CancelHelp, Fetched, Help, Numbered, Outcome, Read


def serve(hub: Hub) -> None:
    """Serve for as long as the process lives."""
    hub.serving = get_ident()
    try:
        hub.worker.ask_for_calls()
        hub.channel.serve()
    except LostDescriptorsError:
        hub.lose()


def handle(hub: Hub, message: Numbered, body: Buffer) -> None:
    """Handle a message and its body."""
    if isinstance(message, Outcome):
        _outcome(hub, message, body)
    elif isinstance(message, Help):
        _help(hub, message, body)
    elif isinstance(message, CancelHelp):
        _cancel_help(hub, message.help)
    elif isinstance(message, Read):
        _read(hub, message)
    else:
        arrived = hub.fetches.get(message.fetch)
        if arrived is not None:
            arrived.put(body if isinstance(message, Fetched) else None)


def _outcome(hub: Hub, message: Outcome, body: Buffer) -> None:
    failure = None if message.ok else _failure_of(body)
    with hub.lock:
        future = hub.calls.get(message.call)
        if future is None:
            return
        hub.forget(future)
    future.micros = message.micros
    try:
        hub.call_back(future, body if message.ok else None, failure)
    except BaseException:
        with hub.lock:
            hub.calls[message.call] = future._frame.calls[message.call] = future
        raise


def _help(hub: Hub, help: Help, body: Buffer) -> None:
    with hub.lock:
        if help.run != hub.worker.session.running or hub.is_doomed():
            hub.send(wire.REFUSE, help.help)
            return
        if not help.aside:
            # The innermost wait may be another one by now than when the client chose this call.
            if hub.main_wait is None or not hub.main_wait.helps or hub.stack[-1].help != help.within:
                hub.send(wire.REFUSE, help.help)
            else:
                hub.helps.append((help, body))
                try:
                    hub.main_wait.wake()
                except BaseException:
                    hub.helps.pop()
                    raise
            return
    if not helping.aside(hub, help, body):
        with hub.lock:
            hub.send(wire.REFUSE, help.help)


def _cancel_help(hub: Hub, number: int) -> None:
    with hub.lock:
        for waiting in hub.helps:
            if waiting[0].help == number:
                hub.answer_waiting(waiting, wire.HELP_FAILED, 0, body=helping.CANCELLED)
                return
        frame = next((frame for frame in hub.stack if frame.help == number), None)
        if frame is not None:
            frame.cancelled = True
            signal.pthread_kill(hub.main or 0, signal.SIGINT)
            return
        aside = hub.asides.get(number)
    if aside is not None:
        aside.cancel()
        hub.drop_later([*aside.calls.values()])


def _read(hub: Hub, message: Read) -> None:
    store = hub.worker.store
    piece = None
    with suppress(OSError):
        piece = None if store is None else store.read(message.digest, message.offset, message.length)
    with hub.lock:
        if piece is None:
            hub.send(wire.MISSING, message.read)
        else:
            # The client limits how many pieces it requests at a time, so they do not count against
            # the room for calls.
            hub.send(wire.PIECE, message.read, body=piece, counts=False)


def _failure_of(body: Buffer) -> BaseException:
    try:
        failure = msgspec.msgpack.decode(body, type=dict[str, Any])
    except wire.UNREADABLE as error:
        return CallError(f"cannot decode the failure of the call: {error}")
    return from_failure(failure)
