"""What clients may say, in the form in which it is accepted; anything else is refused before it reaches the code."""

# No postponed annotations here: the decoders are made from them when a worker starts, and resolving text takes longer.

from typing import Annotated, Final

import msgspec

from . import _wire

Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""A number of something, an index or an offset."""
Slot = Annotated[int, msgspec.Meta(ge=0, lt=_wire.SLOTS)]
"""The place of a payload among those that a worker keeps."""
MOST_SECONDS: Final = 1e9
Seconds = Annotated[float, msgspec.Meta(ge=0, le=MOST_SECONDS)]
"""A deadline or a lease; the client sends 30 years where there is no limit."""
_LINES: Final = 10_000_000


class Hello(msgspec.Struct, tag=_wire.HELLO, array_like=True):
    """Client to agent: the first message."""

    version: int
    pool: str
    max_frame: Count = _wire.MAX_FRAME


class Start(msgspec.Struct, tag=_wire.START, array_like=True):
    """Start workers of a generation."""

    request: Count
    generation: Count
    workers: list[Count]


class ReservePort(msgspec.Struct, tag=_wire.RESERVE_PORT, array_like=True):
    """Reserve a port for a rendezvous."""

    request: Count


class Signal(msgspec.Struct, tag=_wire.SIGNAL, array_like=True):
    """Signal one worker."""

    generation: Count
    worker: Count
    name: str


class Stop(msgspec.Struct, tag=_wire.STOP, array_like=True):
    """Stop workers."""

    request: Count
    generation: Count
    workers: list[Count]
    grace: Seconds


class Ping(msgspec.Struct, tag=_wire.PING, array_like=True):
    """Renew the lease, for this long."""

    sequence: Count
    lease: Seconds


class Logs(msgspec.Struct, tag=_wire.LOGS, array_like=True):
    """Follow a worker's output."""

    generation: Count
    worker: Count
    out: Count
    err: Count


class Shutdown(msgspec.Struct, tag=_wire.SHUTDOWN, array_like=True):
    """End everything."""

    request: Count
    grace: Seconds


class Recall(msgspec.Struct, tag=_wire.RECALL, array_like=True):
    """Keep a worker from beginning runs."""

    generation: Count
    worker: Count
    pid: Count
    upto: Count
    """Runs up to this number that have not begun must not begin."""


class Watch(msgspec.Struct, tag=_wire.WATCH, array_like=True):
    """Run a command that says when the machine will end."""

    command: Annotated[list[str], msgspec.Meta(min_length=1)]
    """The program and its arguments; no shell reads them."""


class Cluster(msgspec.Struct):
    """The part of a start spec's cluster that the agent uses."""

    node: Count
    workers_per_node: Count


class StartSpec(msgspec.Struct):
    """The part of a start spec that the agent uses; workers get it whole."""

    python: str
    cluster: Cluster
    launcher: list[str] = []
    env: dict[str, str] = {}
    secrets: dict[str, str] = {}
    """More of the workers' environment, kept nowhere else."""
    cwd: str | None = None


class Awaited(msgspec.Struct, array_like=True):
    """A run whose items the client still awaits."""

    run: Count
    arrived: Count
    """The items before this index have arrived."""
    granted: Count
    """The items before this index may be sent."""


class Attach(msgspec.Struct, tag=_wire.ATTACH, array_like=True):
    """Client to worker: the first message."""

    version: int
    generation: Count
    acknowledged: Count
    streams: list[Awaited]


class Adopt(msgspec.Struct, tag=_wire.ADOPT, array_like=True):
    """The connection goes on over the two descriptors that come with the message."""


class Load(msgspec.Struct, tag=_wire.LOAD, array_like=True):
    """A payload takes a slot, in the place of the one that is there; its body is a `Source`."""

    slot: Slot
    digest: str


class Source(msgspec.Struct):
    """The body of `Load`."""

    entry: str
    main: str
    files: list[tuple[str, str]]
    first_line: Annotated[int, msgspec.Meta(ge=1, le=_LINES)] = 1


class Run(msgspec.Struct, tag=_wire.RUN, array_like=True):
    """Run a task."""

    run: Count
    """The runs that a worker gets in its life are numbered from 1."""
    payload: Count
    acknowledged: Count
    granted: Count
    """How many items of a stream may be sent; 0: it is none."""
    trace: tuple[str, str] | None = None
    """`traceparent` and `tracestate`, which may be empty."""
    gang: tuple[Count, Count] | None = None
    """The try at a gang, whose tasks run on all ranks at the same time: the number of its first task, and the try."""
    depth: Annotated[int, msgspec.Meta(ge=1, le=_wire.DEEPEST)] | None = None
    """Of a call, which a payload has submitted: the number of callers above it."""


class Ack(msgspec.Struct, tag=_wire.ACK, array_like=True):
    """All results up to this have arrived."""

    sequence: Count


class Credit(msgspec.Struct, tag=_wire.CREDIT, array_like=True):
    """How far the client has come with the items of a run."""

    run: Count
    granted: Count
    arrived: Count


class Cancel(msgspec.Struct, tag=_wire.CANCEL, array_like=True):
    """Cancel a run."""

    run: Count


class Bye(msgspec.Struct, tag=_wire.BYE, array_like=True):
    """Leave the hooks and end."""


class Notice(msgspec.Struct, tag=_wire.NOTICE, array_like=True):
    """The worker's machine will end."""

    kind: str
    seconds: Seconds
    words: str


ToAgent = Hello | Start | ReservePort | Signal | Stop | Ping | Logs | Shutdown | Recall | Watch
ToWorker = Run | Attach | Load | Ack | Credit | Cancel | Bye | Adopt | Notice
