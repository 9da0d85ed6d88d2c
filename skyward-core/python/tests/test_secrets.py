"""Secrets: they are in the worker's environment, and nowhere in files or messages."""

from __future__ import annotations

import os

import msgspec
import pytest

from skyward._core import conceal, wire

from .client import start_spec
from .conftest import Node

TOKEN = "a-token-that-nobody-has"
SOURCE = """
import os
import resource

def main(what):
    token = os.environ["TEST_TOKEN"]
    if what == "raise":
        raise KeyError(token)
    if what == "exit":
        raise SystemExit(f"not with {token}")
    if what == "core":
        return resource.getrlimit(resource.RLIMIT_CORE)[0]
    return token[::-1]
"""


def test_a_secret_is_in_the_environment_and_in_no_file(node: Node) -> None:
    worker = node.ready(SOURCE, secrets={"TEST_TOKEN": TOKEN})
    assert worker.call(1, what="") == TOKEN[::-1]
    assert worker.call(1, what="core") == 1
    files = [path for path in node.folder.rglob("*") if path.is_file()]
    assert len(files) >= 4
    assert not [path for path in files if TOKEN.encode() in path.read_bytes()]


@pytest.mark.parametrize(
    ("what", "said"), [("raise", "'(secret TEST_TOKEN)'"), ("exit", "not with (secret TEST_TOKEN)")]
)
def test_exceptions_name_the_variable_instead_of_the_secret(node: Node, what: str, said: str) -> None:
    failure = node.ready(SOURCE, secrets={"TEST_TOKEN": TOKEN}).failure(1, what=what)
    assert failure["message"] == said
    assert TOKEN not in str(failure)


def test_the_frame_that_brought_a_secret_is_overwritten(node: Node) -> None:
    node.ready(SOURCE, secrets={"TEST_TOKEN": TOKEN})
    agent = node.line["pid"]
    if not os.access(f"/proc/{agent}/mem", os.R_OK):
        pytest.skip("this system lets nobody read the memory of another process")
    with open(f"/proc/{agent}/maps") as maps, open(f"/proc/{agent}/mem", "rb", 0) as memory:
        held = 0
        for line in maps:
            span, mode = line.split()[:2]
            if "rw" not in mode:
                continue
            start, end = (int(number, 16) for number in span.split("-"))
            memory.seek(start)
            try:
                held += memory.read(end - start).count(b"TEST_TOKEN\xb7" + TOKEN.encode())
            except OSError:
                continue
    assert held == 0


def test_a_refused_start_does_not_reveal_the_secret(node: Node) -> None:
    node.agent.send(
        [wire.START, 1, 1, [0]], msgspec.msgpack.encode(start_spec(secrets={"TEST_TOKEN": TOKEN}, python="/no"))
    )
    head, _ = node.agent.expect(wire.ERROR)
    assert TOKEN not in head[2]
    node.agent.send([wire.START, 1, 1, [0]], msgspec.msgpack.encode(start_spec(secrets={"TEST_TOKEN": [TOKEN]})))
    head, _ = node.agent.expect(wire.ERROR)
    assert TOKEN not in head[2]
    assert TOKEN not in (node.folder / "agent.log").read_text()


def test_the_longer_of_two_secrets_is_replaced_first(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"A": "hunter2", "B": "hunter2-and-more", "SHORT": "abc"}.items():
        monkeypatch.setenv(name, value)
    conceal.conceal(["A", "B", "SHORT", "ABSENT"])
    try:
        assert conceal.concealed("no hunter2, hunter2-and-more, abc") == "no (secret A), (secret B), abc"
    finally:
        conceal.conceal([])
