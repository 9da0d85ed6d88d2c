"""Waits for a connection without going to sleep at once."""

from __future__ import annotations

import os
import select
from time import perf_counter_ns
from typing import Final

ALERT_NS: Final = 100_000
"""Nanoseconds for which a worker polls before it sleeps. Waking a sleeping thread, perhaps on a
sleeping processor, takes about as long.
"""
CALLS_ALERT_NS: Final = 250_000
"""The same where calls come and go: a little longer than a call between two workers takes. Without
calls it would keep processors from other workers of the node for longer than needed.
"""


def poll_alert(poll: select.poll, nanoseconds: int) -> list[tuple[int, int]]:
    """Wait until something arrives, at first without sleeping.

    The thread gives up the interpreter lock and the processor between two polls.

    Args:
        poll: the descriptors.
        nanoseconds: how long to poll before the thread sleeps.
    """
    end = perf_counter_ns() + nanoseconds
    while perf_counter_ns() < end:
        events = poll.poll(0)
        if events:
            return events
        os.sched_yield()
    return poll.poll()
