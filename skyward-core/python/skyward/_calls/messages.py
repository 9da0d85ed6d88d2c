"""What a client may say over the connection of a worker's calls; anything else is refused."""

# No postponed annotations, as in `_messages`.

from typing import Annotated

import msgspec

from .. import _wire
from .._messages import Count

Depth = Annotated[int, msgspec.Meta(ge=1, le=_wire.DEEPEST)]
Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
"""The name of a file in the store, and of nothing else on the node."""
Length = Annotated[int, msgspec.Meta(ge=1, le=_wire.LARGEST_PIECE)]


class Attach(msgspec.Struct, tag=_wire.CALLS_ATTACH, array_like=True):
    """The first message, the only one beside `Ack` that has no number."""

    version: int
    generation: Count
    received: Count
    """Messages of the worker up to this number have arrived."""


class Outcome(msgspec.Struct, tag=_wire.OUTCOME, array_like=True):
    """A call has ended. The body is its answer, or a failure map."""

    n: Count
    call: Count
    ok: bool
    micros: Count


class Help(msgspec.Struct, tag=_wire.HELP, array_like=True):
    """Run a call that descends from the task that runs."""

    n: Count
    help: Count
    run: Count
    within: Count
    """The helped call in whose wait it is to run; 0 for a wait of the run itself."""
    depth: Depth
    aside: bool
    """On another thread, because the main thread does not wait."""


class CancelHelp(msgspec.Struct, tag=_wire.CANCEL_HELP, array_like=True):
    """Nobody waits for a helped call any more."""

    n: Count
    help: Count


class Read(msgspec.Struct, tag=_wire.READ, array_like=True):
    """A worker of another node needs a part of a file of this node's store."""

    n: Count
    read: Count
    digest: Digest
    offset: Count
    length: Length


class Fetched(msgspec.Struct, tag=_wire.FETCHED, array_like=True):
    """A part of a file of another node's store: the body."""

    n: Count
    fetch: Count


class NotFetched(msgspec.Struct, tag=_wire.NOT_FETCHED, array_like=True):
    """The other node does not have that file."""

    n: Count
    fetch: Count


class Ack(msgspec.Struct, tag=_wire.CALLS_ACK, array_like=True):
    """Messages of the worker up to this number have arrived."""

    received: Count


Numbered = Outcome | Help | CancelHelp | Read | Fetched | NotFetched
ToCalls = Attach | Numbered | Ack
