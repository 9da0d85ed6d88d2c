"""`sky.report`: values that a payload sends to its caller while it runs."""

from __future__ import annotations

import os
from _thread import get_ident
from typing import Any, Final

from .._core import fork, state, strays
from .._values.codec import encode
from .._values.errors import EncodeError
from .notices import notices

_MOST_WAITING: Final = 4096
_MOST_BYTES: Final = 16 << 20
"""The most reports of other threads that may wait for the payload's thread, and their bytes."""


def report(value: Any) -> None:
    """Send a value to the task's caller while the task runs: an epoch's loss, a checkpoint's name.

    Reports arrive in order, each exactly once, and before the outcome of the task, even if the
    connection is lost meanwhile. In Rust they are the stream of `PendingCompute::reports`, and
    events of the pool. A report of a call that a payload has submitted goes to the call in Rust at
    the root. It names the task that the worker runs, which is a caller of the submitted call if the
    worker helps with it. A report of a hook around the app belongs to no task and is only an event.

    Reports stay in memory until they have arrived. While 256 reports or 16 MiB wait, this function
    blocks. A report from a thread other than the payload's main thread is sent with the main
    thread's next report, or at the end of the payload. Outside a pool the value is checked, and
    nothing is sent.

    Args:
        value: any value that a payload may return.

    Raises:
        TypeError: the value cannot be sent; the message names the part that cannot.
        ValueError: the encoded value is larger than `Limits::max_frame_bytes`.
        RuntimeError: the function is called in another process than the worker's, or on a thread of
            a run that has ended; or 4096 reports or 16 MiB of other threads are waiting already.
        KeyboardInterrupt: the task was cancelled while this function waited.

    Example:
        for epoch in range(epochs):
            sky.report({"epoch": epoch, "loss": fit()})
    """
    worker = state.worker
    if fork.is_child or (worker is None and "SKYWARD_PAYLOADS" in os.environ):
        raise RuntimeError(
            f"sky.report cannot send from process {os.getpid()}, which the payload started: return the value "
            "to the process that runs the payload, and report it there"
        )
    try:
        # Make a copy: the payload may change the value before it is sent.
        body = b"".join(encode(value))
    except EncodeError as error:
        place = f" at {error.path}" if error.path else ""
        raise TypeError(f"sky.report cannot send a {error.value_type}{place}: {error.reason}") from None
    if worker is None:
        return
    if len(body) > worker.session.max_frame_bytes:
        raise ValueError(
            f"sky.report cannot send a value of {len(body)} bytes: a frame holds at most "
            f"{worker.session.max_frame_bytes}; report a part of it, or raise `Limits::max_frame_bytes`"
        )
    if get_ident() == notices.main:
        worker.report(body)
        return
    stray = strays.begun()
    if stray is not None:
        raise RuntimeError(
            f"this thread executes `{stray}` of a run that has ended, so its reports would go to another task; end the "
            "thread before its run ends"
        )
    waiting = list(worker.reports)
    if len(waiting) >= _MOST_WAITING or (waiting and sum(len(one) for _, one in waiting) + len(body) > _MOST_BYTES):
        raise RuntimeError(
            f"{len(waiting)} reports of other threads wait for the payload's main thread, which sends them with its "
            "next report or at its end; report less often, or from the main thread"
        )
    worker.reports.append((worker.session.running or 0, body))
