"""Waits for a connection without going to sleep at once."""

from __future__ import annotations

import os
import select
from collections.abc import Callable
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
_QUIET_MS: Final = 50
"""Milliseconds without an event after which a worker gives up what only the next call could use."""


def poll_alert(poll: select.poll, nanoseconds: int, on_quiet: Callable[[], None]) -> list[tuple[int, int]]:
    """Wait until something arrives, at first without sleeping.

    The thread gives up the interpreter lock and the processor between two polls.

    Args:
        poll: the descriptors.
        nanoseconds: how long to poll before the thread sleeps.
        on_quiet: called if nothing arrives for a while.
    """
    end = perf_counter_ns() + nanoseconds
    while perf_counter_ns() < end:
        events = poll.poll(0)
        if events:
            return events
        os.sched_yield()
    return poll_asleep(poll, on_quiet)


def poll_asleep(poll: select.poll, on_quiet: Callable[[], None]) -> list[tuple[int, int]]:
    """Wait until something arrives, and call `on_quiet` if nothing arrives for a while."""
    events = poll.poll(_QUIET_MS)
    if not events:
        on_quiet()
        events = poll.poll()
    return events
