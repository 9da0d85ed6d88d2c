"""Files of the store that another node has: asked for piece by piece, by way of the client."""

from __future__ import annotations

from collections.abc import Iterator
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

from .. import _wire
from .._values import Buffer
from .errors import CallError
from .start import current

if TYPE_CHECKING:
    from .hub import Hub

Arrived = SimpleQueue["Buffer | None"]
"""The pieces of one file, in order; None: there are none."""

_AHEAD: Final = 4
"""Pieces that are asked for and have not come, at most."""
_LOOK: Final = 0.2
"""Seconds after which a thread that waits looks for an interrupt."""


def pieces(digest: str, size: int, rank: int) -> Iterator[Buffer]:
    """The bytes of a file.

    Args:
        digest: its name.
        size: bytes that it has.
        rank: a worker whose node has it.

    Raises:
        CallError: that worker is not there, or does not have the file any more.
    """
    hub = current()
    each = min(_wire.LARGEST_PIECE, hub.max_frame)
    arrived: Arrived = SimpleQueue()
    number = _begin(hub, arrived)
    try:
        asked = got = 0
        while got < size:
            while asked < size and asked - got < _AHEAD * each:
                _ask(hub, number, rank, digest, asked, min(each, size - asked))
                asked += min(each, size - asked)
            piece = _next(hub, arrived)
            if piece is None or not len(piece):
                raise CallError(f"an argument of {size} bytes is not on the node of rank {rank} any more")
            got += len(piece)
            yield piece
    finally:
        hub.fetches.pop(number, None)


def _begin(hub: Hub, arrived: Arrived) -> int:
    was = hub.enter()
    try:
        with hub.lock:
            return hub.begin_fetch(arrived)
    finally:
        hub.leave(was)


def _ask(hub: Hub, number: int, rank: int, digest: str, offset: int, length: int) -> None:
    was = hub.enter()
    try:
        with hub.lock:
            hub.send(_wire.FETCH, number, rank, digest, offset, length)
    finally:
        hub.leave(was)


def _next(hub: Hub, arrived: Arrived) -> Buffer | None:
    """The next piece. An interrupt of the task comes between two looks at the latest.

    A worker that is busy, or cut off for a while, answers later. One that ends takes its calls with it, this one among
    them: the client cancels it. For all else the call has its timeout.
    """
    while True:
        try:
            return arrived.get(timeout=_LOOK)
        except Empty:
            pass
        if hub.lost:
            raise CallError("the payload has closed descriptors of its worker, which its arguments come through")
