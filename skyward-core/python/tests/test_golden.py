"""The golden frames of `tests/golden/frames.json`, which the Rust side checks too."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from skyward._core import wire

from .golden import PATH, shown, text

FRAMES: list[dict[str, Any]] = json.loads(PATH.read_text())


def test_the_file_is_what_this_side_would_write() -> None:
    assert PATH.read_text() == text()


@pytest.mark.parametrize("golden", FRAMES, ids=lambda golden: f"{golden['direction']}:{golden['name']}")
def test_a_frame_is_read_back(golden: dict[str, Any]) -> None:
    left, right = socket.socketpair()
    with left, right:
        left.sendall(bytes.fromhex(golden["frame_hex"]))
        reader = wire.FrameReader()
        reader.fill(right)
        [(head, body, _)] = [(head, bytes(body), owned) for head, body, owned in reader.frames()]
    assert shown(head) == golden["head"]
    assert body.hex() == golden["body_hex"]


def test_every_message_is_there() -> None:
    # `Adopt` is not in the file, because it arrives with descriptors.
    to_worker = {*range(65, 75)} - {wire.ADOPT}
    of_calls = {*range(129, 137), *range(161, 173)}
    of_mover = {*range(193, 207), *range(225, 237), *range(257, 260), *range(289, 291)}
    numbers = {*range(1, 12), *range(33, 49), *to_worker, *range(97, 103), *of_calls, *of_mover}
    assert {golden["head"][0] for golden in FRAMES} == numbers
