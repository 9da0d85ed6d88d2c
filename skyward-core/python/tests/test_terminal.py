"""What asks a person on a worker, which has no terminal."""

from __future__ import annotations

import pytest

from .conftest import Node

RUN = """
    import io, sys
    def main(code):
        found = {}
        exec(code, {}, found)
        return found.get("found")
"""


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        ("input()", "EOFError", "pass the value as an argument"),
        ("input('name? ')", "EOFError", "pass the value as an argument"),
        ("breakpoint()", "RuntimeError", "sky.report"),
        ("import sys; sys.breakpointhook(header='here')", "RuntimeError", "PYTHONBREAKPOINT"),
    ],
)
def test_the_error_says_what_to_do_instead(node: Node, code: str, kind: str, words: str) -> None:
    failure = node.ready(RUN).failure(1, code=code)
    assert failure["type"] == kind
    assert words in failure["message"]


def test_standard_input_of_a_payload_is_read(node: Node) -> None:
    worker = node.ready(RUN)
    assert worker.call(1, code="import io, sys; sys.stdin = io.StringIO('a line'); found = input()") == "a line"


@pytest.mark.parametrize(("name", "found"), [("0", None), ("builtins.len", 3)])
def test_a_debugger_that_the_image_names_is_called(node: Node, name: str, found: int | None) -> None:
    worker = node.ready(RUN, env={"PYTHONBREAKPOINT": name})
    assert worker.call(1, code="found = breakpoint('abc')") == found
