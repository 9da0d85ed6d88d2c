"""Variables by which Accelerate passes settings: a module's stay, and those of a task end with it."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Node

# Only that Accelerate is loaded matters here.
MAIN = """
    import os, sys, types

    sys.modules["accelerate"] = types.ModuleType("accelerate")
    {top}
    def main(within=""):
        exec(within, {{}})
        return {{name: value for name, value in os.environ.items() if name.startswith(("ACCELERATE_", "FSDP_"))}}
"""
GIVEN = {"ACCELERATE_LOG_LEVEL": "info"}


def tasks(node: Node, top: str = "", *within: str, **files: str) -> list[Any]:
    """Return the variables in tasks of a payload, where each changes something before."""
    main = MAIN.format(top=top)
    payload = {"job.py": main, **{f"{name}.py": text for name, text in files.items()}} if files else main
    worker = node.ready(payload, env=GIVEN)
    worker.gang = None
    return [worker.call(1, within=text) for text in within]


def test_a_variable_that_a_task_sets_ends_with_it(node: Node) -> None:
    change = "import os; os.environ.update(FSDP_VERSION='2', ACCELERATE_LOG_LEVEL='debug')"
    found = tasks(node, "", change, "", "import os; del os.environ['ACCELERATE_LOG_LEVEL']", "")
    assert found == [{"FSDP_VERSION": "2", "ACCELERATE_LOG_LEVEL": "debug"}, GIVEN, {}, GIVEN]


@pytest.mark.parametrize(
    ("top", "wanted"),
    [
        ("os.environ['ACCELERATE_MIXED_PRECISION'] = 'bf16'", {**GIVEN, "ACCELERATE_MIXED_PRECISION": "bf16"}),
        ("os.environ['ACCELERATE_LOG_LEVEL'] = 'debug'", {"ACCELERATE_LOG_LEVEL": "debug"}),
        ("del os.environ['ACCELERATE_LOG_LEVEL']", {}),
    ],
)
def test_what_a_module_does_when_it_is_loaded_holds_for_every_task(
    node: Node, top: str, wanted: dict[str, str]
) -> None:
    assert tasks(node, top, "", "import os; os.environ['FSDP_VERSION'] = '2'", "")[::2] == [wanted] * 2


def test_modules_that_are_loaded_later_count_too(node: Node) -> None:
    helper = "import os\nos.environ['FSDP_VERSION'] = '1'\nimport other\n"
    other = "import os\nos.environ['FSDP_STATE_DICT_TYPE'] = 'FULL'\n"
    load = "import sys; from importlib import import_module as load; load(NAME)"
    name = "next(n for n in sys.modules if n.startswith('payload_')).partition('.')[0] + '.payload.helper'"
    found = tasks(node, "", load.replace("NAME", name), "", helper=helper, other=other)
    assert found == [{**GIVEN, "FSDP_VERSION": "1", "FSDP_STATE_DICT_TYPE": "FULL"}] * 2
