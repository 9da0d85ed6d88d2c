"""Waits for a connection without going to sleep at once."""

from __future__ import annotations

import os
import select
from time import perf_counter_ns
from typing import Final

_ALERT_NS: Final = 250_000
"""Nanoseconds for which a thread polls before it sleeps: a little longer than a call between two
workers takes. Waking a sleeping thread, perhaps on a sleeping processor, takes longer than this.
"""


def poll_alert(poll: select.poll) -> list[tuple[int, int]]:
    """Wait until something arrives, at first without sleeping.

    The thread gives up the interpreter lock and the processor between two polls.
    """
    end = perf_counter_ns() + _ALERT_NS
    while perf_counter_ns() < end:
        events = poll.poll(0)
        if events:
            return events
        os.sched_yield()
    return poll.poll()
