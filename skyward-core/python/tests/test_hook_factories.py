"""The forms that the factory of a hook may have."""

from __future__ import annotations

import pytest

from skyward._tasks.hooks import Hook

GENERATOR = """
def around_app(config):
    config["seen"].append("in")
    yield
    config["seen"].append("out")
"""

DECORATED = """
from contextlib import contextmanager
@contextmanager
def around_app(config):
    config["seen"].append("in")
    yield
    config["seen"].append("out")
"""

CLASS = """
class around_app:
    def __init__(self, config): self.seen = config["seen"]
    def __enter__(self): self.seen.append("in")
    def __exit__(self, *_): self.seen.append("out")
"""


def make(source: str, seen: list[str]) -> Hook:
    return Hook(
        {
            "plugin": "p",
            "kind": "app",
            "source": source,
            "filename": "p.py",
            "factory": "around_app",
            "config": {"seen": seen},
        }
    )


@pytest.mark.parametrize("source", [GENERATOR, DECORATED, CLASS])
def test_generators_and_context_managers_are_entered_alike(source: str) -> None:
    seen: list[str] = []
    hook = make(source, seen)
    for _ in range(2):
        with hook.make():
            seen.append("body")
    assert seen == ["in", "body", "out"] * 2


def test_anything_else_is_refused_with_what_to_do() -> None:
    with pytest.raises(TypeError, match="or let it yield once"):
        make("def around_app(config): return 1", []).make()
