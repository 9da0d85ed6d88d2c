"""The record of a data set: which of its files are in its tree, and what was true of each when it was checked.

A file whose inode, size and time of modification are still those of the record has not been changed
since, so it need not be read again.
"""

# This file does not use `from __future__ import annotations`, for the reason in `_core.messages`.

import os
from contextlib import suppress
from typing import Final

import msgspec

from .._core import wire
from .messages import Identity

_NAME: Final = "record"
_VERSION: Final = 1

Recorded = tuple[bytes, Identity, str, bool]
"""Path, identity, SHA-256, whether the owner may execute it."""


class Record(msgspec.Struct, array_like=True):
    """What is known of a data set."""

    version: int
    total: int
    """The bytes of all files that the manifest lists, also of those that are not there yet."""
    files: list[Recorded]


class _Total(msgspec.Struct, array_like=True):
    """The beginning of a record, so that the files of others are not decoded."""

    version: int
    total: int
    files: msgspec.Raw


_decode: Final = msgspec.msgpack.Decoder(Record).decode
_decode_total: Final = msgspec.msgpack.Decoder(_Total).decode
_encode: Final = msgspec.msgpack.Encoder().encode


def read(folder: str) -> list[Recorded]:
    """Return the files of a record; none if there is no record, or one that this version cannot read."""
    with suppress(OSError, *wire.UNREADABLE):
        record = _decode(_content(folder))
        if record.version == _VERSION:
            return record.files
    return []


def total(folder: str) -> int:
    """Return the bytes of all files of a data set; 0 if that is not recorded."""
    with suppress(OSError, *wire.UNREADABLE):
        return max(0, _decode_total(_content(folder)).total)
    return 0


def write(folder: str, total: int, files: list[Recorded]) -> None:
    """Replace the record, in one step.

    Raises:
        OSError: it cannot be written.
    """
    # Who holds the lock of the data set removes hidden files.
    hidden = f"{folder}/.{_NAME}"
    with open(hidden, "wb") as file:
        file.write(_encode(Record(_VERSION, total, files)))
    os.rename(hidden, f"{folder}/{_NAME}")


def _content(folder: str) -> bytes:
    with open(f"{folder}/{_NAME}", "rb") as file:
        return file.read()
