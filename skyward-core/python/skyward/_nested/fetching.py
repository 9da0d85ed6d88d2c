"""Fetch files of another node's store piece by piece, through the client."""

from __future__ import annotations

from collections.abc import Iterator
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Final

from .._calls.errors import CallError
from .._core import wire
from .._sky.plan import TIMEOUT
from .._values.codec import Buffer
from .hub import Arrived, Hub
from .start import current

_AHEAD: Final = 4
"""The most requested pieces that have not arrived."""
_LOOK: Final = 0.2
"""Seconds after which a waiting thread checks for an interrupt."""
_LONGEST: Final = TIMEOUT
"""The most seconds without a piece: as long as ranks wait for each other, because what delays them
delays a piece too.
"""


def pieces(digest: str, size: int, rank: int) -> Iterator[Buffer]:
    """Yield the bytes of a file.

    Args:
        digest: the name of the file.
        size: its size in bytes.
        rank: a worker whose node has the file.

    Raises:
        CallError: that worker has ended, does not have the file any more, or does not answer.
    """
    hub = current()
    each = min(wire.LARGEST_PIECE, hub.max_frame_bytes)
    arrived: Arrived = SimpleQueue()
    number = _begin(hub, arrived)
    try:
        asked = got = 0
        while got < size:
            while asked < size and asked - got < _AHEAD * each:
                _ask(hub, number, rank, digest, asked, min(each, size - asked))
                asked += min(each, size - asked)
            piece = _next(hub, arrived, size, rank)
            if piece is None or not len(piece):
                raise CallError(f"an argument of {size} bytes is no longer on the node of rank {rank}")
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
            hub.send(wire.FETCH, number, rank, digest, offset, length)
    finally:
        hub.leave(was)


def _next(hub: Hub, arrived: Arrived, size: int, rank: int) -> Buffer | None:
    """Wait for the next piece, and check for an interrupt of the task now and then.

    A worker that is busy, or cut off for a while, answers late. If the worker that has the file
    ends, this call is cancelled. The call's own timeout, if it has one, may end the wait earlier.

    Raises:
        CallError: no piece has arrived for too long.
    """
    end = monotonic() + _LONGEST
    while True:
        try:
            return arrived.get(timeout=_LOOK)
        except Empty:
            pass
        if hub.lost:
            raise CallError("the payload has closed descriptors of its worker, through which arguments arrive")
        if monotonic() >= end:
            raise CallError(
                f"the worker of rank {rank} has sent no part of an argument of {size} bytes for {_LONGEST:g} s; if "
                "native code there keeps Python's interpreter lock, let it release the lock now and then"
            )
