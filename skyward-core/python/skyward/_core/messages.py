"""The messages of clients, as types against which they are decoded.

A message that does not fit its type is refused before other code sees it.
"""

# This file does not use `from __future__ import annotations`: decoders are made from the
# annotations at each start, and resolving them from text takes longer.

from typing import Annotated, Final

import msgspec

from . import wire

Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""A count, an index or an offset."""
PayloadNumber = Annotated[int, msgspec.Meta(ge=0, lt=wire.PAYLOADS)]
"""The number under which a worker keeps a payload."""
MOST_SECONDS: Final = 1e9
Seconds = Annotated[float, msgspec.Meta(ge=0, le=MOST_SECONDS)]
"""A deadline or a lease; without a limit, the client sends 30 years."""
_LINES: Final = 10_000_000


class Hello(msgspec.Struct, tag=wire.HELLO, array_like=True):
    """The first message of a client to the agent."""

    version: int
    pool: str
    max_frame_bytes: Count = wire.MAX_FRAME_BYTES


class Start(msgspec.Struct, tag=wire.START, array_like=True):
    """Start workers of a generation."""

    request: Count
    generation: Count
    workers: list[Count]


class ReservePort(msgspec.Struct, tag=wire.RESERVE_PORT, array_like=True):
    """Reserve a port for a rendezvous."""

    request: Count


class Signal(msgspec.Struct, tag=wire.SIGNAL, array_like=True):
    """Send a signal to one worker."""

    generation: Count
    worker: Count
    name: str


class Stop(msgspec.Struct, tag=wire.STOP, array_like=True):
    """Stop workers."""

    request: Count
    generation: Count
    workers: list[Count]
    grace: Seconds


class Ping(msgspec.Struct, tag=wire.PING, array_like=True):
    """Renew the lease; it expires after this many seconds."""

    sequence: Count
    lease: Seconds


class Logs(msgspec.Struct, tag=wire.LOGS, array_like=True):
    """Follow a worker's output from these offsets in its two files."""

    generation: Count
    worker: Count
    out: Count
    err: Count


class Shutdown(msgspec.Struct, tag=wire.SHUTDOWN, array_like=True):
    """End the agent and everything below it."""

    request: Count
    grace: Seconds


class Recall(msgspec.Struct, tag=wire.RECALL, array_like=True):
    """Stop a worker from beginning runs."""

    generation: Count
    worker: Count
    pid: Count
    upto: Count
    """Runs up to this number that have not begun must not begin."""


class Watch(msgspec.Struct, tag=wire.WATCH, array_like=True):
    """Run a watch command, which reports when the machine will end."""

    command: Annotated[list[str], msgspec.Meta(min_length=1)]
    """The program and its arguments, run without a shell."""


class Mover(msgspec.Struct, tag=wire.MOVER, array_like=True):
    """Start the mover unless it runs, and say where it listens."""

    request: Count


class Cluster(msgspec.Struct):
    """The part of a start spec's cluster that the agent uses."""

    node: Count
    workers_per_node: Count


class StartSpec(msgspec.Struct):
    """The part of a start spec that the agent uses; workers receive all of it."""

    python: str
    cluster: Cluster
    launcher: list[str] = []
    env: dict[str, str] = {}
    secrets: dict[str, str] = {}
    """More variables for the workers' environment, stored nowhere else."""
    cwd: str | None = None


class Awaited(msgspec.Struct, array_like=True):
    """A run whose stream items the client still expects."""

    run: Count
    arrived: Count
    """The items before this index have arrived."""
    granted: Count
    """The items before this index may be sent."""


class Attach(msgspec.Struct, tag=wire.ATTACH, array_like=True):
    """The first message of a client to a worker."""

    version: int
    generation: Count
    acknowledged: Count
    streams: list[Awaited]


class Adopt(msgspec.Struct, tag=wire.ADOPT, array_like=True):
    """Continue the connection over the two descriptors that arrive with this message."""


class Load(msgspec.Struct, tag=wire.LOAD, array_like=True):
    """Keep a payload under a number, in place of the one before; the body is a `Source`."""

    payload: PayloadNumber
    digest: str


class Source(msgspec.Struct):
    """The body of `Load`."""

    entry: str
    main: str
    files: list[tuple[str, str]]
    first_line: Annotated[int, msgspec.Meta(ge=1, le=_LINES)] = 1


class Run(msgspec.Struct, tag=wire.RUN, array_like=True):
    """Run a task."""

    run: Count
    """The number of the run; a worker's runs are numbered from 1."""
    payload: Count
    acknowledged: Count
    granted: Count
    """How many stream items may be sent; 0 for a task without a stream."""
    trace: tuple[str, str] | None = None
    """`traceparent` and `tracestate`, of which the second may be empty."""
    gang: tuple[Count, Count, Count] | None = None
    """Only for a task of a broadcast: the number of the first task, the number of the attempt, and
    how many ranks run it.
    """
    depth: Annotated[int, msgspec.Meta(ge=1, le=wire.DEEPEST)] | None = None
    """Only for a call of a payload: the number of callers above it."""


class Ack(msgspec.Struct, tag=wire.ACK, array_like=True):
    """All results up to this number have arrived."""

    sequence: Count


class Credit(msgspec.Struct, tag=wire.CREDIT, array_like=True):
    """How many items of a run the client has received, and how many may be sent."""

    run: Count
    granted: Count
    arrived: Count


class Cancel(msgspec.Struct, tag=wire.CANCEL, array_like=True):
    """Cancel a run."""

    run: Count


class Bye(msgspec.Struct, tag=wire.BYE, array_like=True):
    """Leave the hooks and end."""


class Notice(msgspec.Struct, tag=wire.NOTICE, array_like=True):
    """The machine of the worker will end."""

    kind: str
    seconds: Seconds
    words: str


class Size(msgspec.Struct, tag=wire.SIZE, array_like=True):
    """How many workers the pool may have, until the next message of this kind."""

    workers: Annotated[int, msgspec.Meta(ge=1, le=(1 << 32) - 1)]


ToAgent = Hello | Start | ReservePort | Signal | Stop | Ping | Logs | Shutdown | Recall | Watch | Mover
ToWorker = Run | Attach | Load | Ack | Credit | Cancel | Bye | Adopt | Notice | Size
