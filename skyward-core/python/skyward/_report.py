"""What a payload reports to its caller while it runs."""

from __future__ import annotations

import os
from _thread import get_ident
from typing import Any, Final

from . import _fork, _state, _strays
from ._notices import notices
from ._values import EncodeError, encode

_MOST_WAITING: Final = 4096
_MOST_BYTES: Final = 16 << 20
"""Reports of other threads that wait for the thread that runs the payload, and their bytes."""


def report(value: Any) -> None:
    """Report a value to the caller of the task that runs: the loss of an epoch, the name of a checkpoint.

    Reports arrive in order, each of them once, and before the task's own outcome, also where the connection is lost
    meanwhile. In Rust they are the stream of `PendingCompute::reports` and events of the pool. A report of a call
    within a call goes to the caller in Rust; one of a hook around the app belongs to no task and is an event only.

    Reports that have not arrived are kept in memory; from 256 of them or 16 MiB on, this function waits until some
    have arrived. A report of another thread than the one that runs the payload leaves with the next report of that
    one, or when the payload has ended. Outside of a pool the value is checked, and nothing else happens.

    Args:
        value: anything that a payload may return.

    Raises:
        TypeError: the value cannot be sent; names the part of it that cannot.
        ValueError: it is larger than a frame may be.
        RuntimeError: this is another process than the worker, or a thread of a run that has ended, or 4096 reports of
            other threads wait already, or 16 MiB of them.
        KeyboardInterrupt: the task was cancelled while this function waited.
    """
    worker = _state.worker
    if _fork.is_child or (worker is None and "SKYWARD_PAYLOADS" in os.environ):
        raise RuntimeError(
            f"sky.report cannot send from process {os.getpid()}, which is not the worker but was started by it: give "
            "the value back to the process that runs the payload, and report it there"
        )
    try:
        # A copy: the payload may change what it has reported while that is on its way.
        body = b"".join(encode(value))
    except EncodeError as error:
        place = f" at {error.path}" if error.path else ""
        raise TypeError(f"sky.report cannot send a {error.value_type}{place}: {error.reason}") from None
    if worker is None:
        return
    if len(body) > worker.session.max_frame:
        raise ValueError(
            f"sky.report cannot send a value of {len(body)} bytes: a frame holds {worker.session.max_frame} at most; "
            "report a part of it, or raise `Limits::max_frame`"
        )
    if get_ident() == notices.main:
        worker.report(body)
        return
    stray = _strays.begun()
    if stray is not None:
        raise RuntimeError(
            f"this thread executes `{stray}`, which belongs to a run that has ended: its reports would be those of "
            "another task; end the thread with its run"
        )
    waiting = list(worker.reports)
    if len(waiting) >= _MOST_WAITING or (waiting and sum(len(one) for _, one in waiting) + len(body) > _MOST_BYTES):
        raise RuntimeError(
            f"{len(waiting)} reports of other threads wait for the thread that runs the payload: they leave when it "
            "reports something or has ended; report less often, or from that thread"
        )
    worker.reports.append((worker.session.running or 0, body))
