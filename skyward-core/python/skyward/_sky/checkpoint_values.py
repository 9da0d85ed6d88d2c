"""What a block of checkpoints is opened with, what it begins from, and where its saves go."""

from __future__ import annotations

import json
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import Any, Final, NamedTuple

from .arguments import an_object, checked_name, checked_seconds

_MOST_META: Final = 64 << 10
"""The most bytes of `meta` as JSON text."""
_LARGEST_STEP: Final = (1 << 63) - 1


class CheckpointError(RuntimeError):
    """A checkpoint cannot be brought back or kept; the message says why, and what to do."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint from which a payload continues; `Checkpoints.latest` returns it."""

    step: int
    """The step at which it was saved."""
    path: Path
    """The folder with its files, of all ranks together. Do not change what is in it."""
    meta: dict[str, Any]
    """What was given to `save` as `meta`; an empty map if nothing was."""


class Options(NamedTuple):
    """What `sky.checkpoints` was called with."""

    name: str
    keep: int | None
    writers: str
    own: bool
    timeout: float


def checked_options(name: Any, keep: Any, writers: Any, own: Any, timeout: Any) -> Options:
    """Return the arguments of `sky.checkpoints`.

    Raises:
        TypeError: one has another type.
        ValueError: one has a value that it cannot have.
    """
    name = checked_name("checkpoints", name)
    if keep is not None:
        keep = _whole("keep", keep)
        if keep < 1:
            raise ValueError(f"keep={keep}: at least 1 checkpoint is kept; pass None to keep all")
    if writers not in ("all", "head"):
        raise ValueError(f'writers={writers!r}: pass "all" if each rank saves its own files, or "head" if rank 0 does')
    if not isinstance(own, bool):
        raise TypeError(f"own must be True or False, not {an_object(own)}")
    return Options(name, keep, writers, own, checked_seconds("timeout", timeout))


def checked_every(value: Any) -> int:
    """Return the number of steps between two saves.

    Raises:
        TypeError: it is no whole number.
        ValueError: it is below 1.
    """
    every = _whole("every", value)
    if every < 1:
        raise ValueError(f"every={every}: it must be at least 1 step; leave it out to save at no fixed steps")
    return every


def checked_step(value: Any) -> int:
    """Return a step.

    Raises:
        TypeError: it is no whole number.
        ValueError: it is below 0 or does not fit into 64 bits.
    """
    step = _whole("the step", value)
    if not 0 <= step <= _LARGEST_STEP:
        raise ValueError(f"{step} cannot be a step: steps are counted from 0 to {_LARGEST_STEP}")
    return step


def meta_text(meta: Any) -> str:
    """Return `meta` as JSON.

    Raises:
        TypeError: it is no dict, or has a value that JSON has not.
        ValueError: it has a number that JSON has not, or is too large.
    """
    if meta is None:
        return "{}"
    if not isinstance(meta, dict):
        raise TypeError(f"meta must be a dict, not {an_object(meta)}")
    try:
        text = json.dumps(meta, allow_nan=False, ensure_ascii=False)
        size = len(text.encode())
    except TypeError as error:
        raise TypeError(
            f"meta cannot be written as JSON: {error}; convert arrays and tensors, e.g. with float(loss) or .tolist()"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"meta cannot be written as JSON: {error}; it can have numbers that are finite, texts, booleans, None, and "
            "lists and dicts of these"
        ) from None
    if size > _MOST_META:
        raise ValueError(
            f"meta has {size} bytes as JSON, and {_MOST_META} are possible: write it to a file of the save"
        )
    return text


def meta_of(text: str) -> dict[str, Any]:
    """Return what `meta_text` has made this text from.

    Raises:
        ValueError: it is no JSON of a dict.
    """
    meta = json.loads(text)
    if not isinstance(meta, dict):
        raise ValueError(f"it is the JSON of {an_object(meta)}, and not of a dict")
    return meta


def _whole(what: str, value: Any) -> int:
    try:
        if not isinstance(value, bool):
            return index(value)
    except TypeError:
        pass
    raise TypeError(f"{what} must be a whole number, not {an_object(value)}")
