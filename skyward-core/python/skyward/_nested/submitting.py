"""Submit a pickled call, and return its future."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._calls.errors import CallError
from .._calls.store import Hold
from .._core import wire
from .._values.codec import Buffer
from . import waiting
from .future import Future
from .hub import LOST, Hub


def submit(hub: Hub, body: Buffer, options: dict[str, Any] | None, holds: Sequence[Hold] = ()) -> Future:
    """Submit a call; wait while too many bytes of earlier calls are not acknowledged.

    Args:
        hub: the hub of the process.
        body: the pickled function and arguments.
        options: the options, as the client expects them.
        holds: the files of the store that must stay until the outcome.

    Raises:
        CallError: no call can be submitted here.
        CancelledError: the caller was cancelled, or has ended.
    """
    future: Future | None = None
    try:
        was = hub.enter()
        try:
            while True:
                with hub.lock:
                    frame = hub.checked_caller()
                    if hub.has_room(len(body)):
                        hub.last_call += 1
                        future = Future(hub, hub.last_call, frame, holds)
                        hub.calls[hub.last_call] = frame.calls[hub.last_call] = future
                        hub.send(wire.SUBMIT, hub.last_call, frame.run, frame.help, options, body=body)
                        break
                waiting.for_room(hub, frame, len(body))
            if hub.lost:
                hub.lose()
                raise CallError(LOST)
        finally:
            hub.leave(was)
        return future
    except BaseException:
        if future is not None:
            # The caller gets no future, and may submit the call again, so this one must not
            # run, although its message may be kept.
            hub.drop_later((future,))
        raise
