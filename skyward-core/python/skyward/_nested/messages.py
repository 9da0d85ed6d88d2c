"""The messages of a client over a worker's second connection, for calls.

A message that does not fit its type is refused.
"""

# No `from __future__ import annotations`, as in `_core/messages.py`.

from typing import Annotated

import msgspec

from .._core import wire
from .._core.messages import Count

Depth = Annotated[int, msgspec.Meta(ge=1, le=wire.DEEPEST)]
Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
"""The name of a file in the store; the pattern excludes all other paths."""
Length = Annotated[int, msgspec.Meta(ge=1, le=wire.LARGEST_PIECE)]


class Attach(msgspec.Struct, tag=wire.CALLS_ATTACH, array_like=True):
    """The first message. Except for this and `Ack`, all messages are numbered."""

    version: int
    generation: Count
    received: Count
    """The client has received messages of the worker up to this number."""


class Outcome(msgspec.Struct, tag=wire.OUTCOME, array_like=True):
    """A call has ended. The body is its answer, or a failure map."""

    n: Count
    call: Count
    ok: bool
    micros: Count


class Help(msgspec.Struct, tag=wire.HELP, array_like=True):
    """Run a call that descends from the running task."""

    n: Count
    help: Count
    run: Count
    within: Count
    """The helped call during whose wait it must run; 0 for a wait of the run itself."""
    depth: Depth
    aside: bool
    """Whether to use another thread, because the main thread does not wait."""


class CancelHelp(msgspec.Struct, tag=wire.CANCEL_HELP, array_like=True):
    """Cancel a helped call."""

    n: Count
    help: Count


class Read(msgspec.Struct, tag=wire.READ, array_like=True):
    """Read a part of a file of this node's store, for a worker of another node."""

    n: Count
    read: Count
    digest: Digest
    offset: Count
    length: Length


class Fetched(msgspec.Struct, tag=wire.FETCHED, array_like=True):
    """A part of a file of another node's store, in the body."""

    n: Count
    fetch: Count


class NotFetched(msgspec.Struct, tag=wire.NOT_FETCHED, array_like=True):
    """The other node does not have the file."""

    n: Count
    fetch: Count


class Ack(msgspec.Struct, tag=wire.CALLS_ACK, array_like=True):
    """The client has received messages of the worker up to this number."""

    received: Count


Numbered = Outcome | Help | CancelHelp | Read | Fetched | NotFetched
ToCalls = Attach | Numbered | Ack
