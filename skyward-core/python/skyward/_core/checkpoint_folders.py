"""The folders of a node's checkpoints, which workers and the mover share.

A save that is not complete yet has the hidden name of `artifacts.hidden`, and its writer holds the
lock of `artifacts.make_locked`. So `artifacts.sweep` removes what killed processes leave.
"""

from __future__ import annotations

from typing import Final

FOLDER: Final = "checkpoints"
"""The folder of all, in the node's folder."""
OUTBOX: Final = "outbox"
"""The folder of saves, each under its id, which wait for the client."""
STEPS: Final = "steps"
"""The folder of the files that record the step of a worker, and what the client asks."""
RESTORED: Final = "restored"
"""The folder of commits that the client has brought to the node."""
CONTENT: Final = "content"
"""The folder of a save's files, in the save's own folder."""
RECORD: Final = "record"
"""The file that says what a save is, in the save's own folder."""


def outbox(home: str) -> str:
    """Return the path of the folder of saves, in the node's folder `home`."""
    return f"{home}/{FOLDER}/{OUTBOX}"


def steps(home: str) -> str:
    """Return the path of the folder of steps, in the node's folder `home`."""
    return f"{home}/{FOLDER}/{STEPS}"


def restored(home: str) -> str:
    """Return the path of the folder of restored commits, in the node's folder `home`."""
    return f"{home}/{FOLDER}/{RESTORED}"
