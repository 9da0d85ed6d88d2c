"""Python's `logging` shows what the image asks for."""

from __future__ import annotations

import pytest

from .conftest import Node

LOGS = """
    import logging
    def main():
        for level in (10, 20, 30):
            logging.getLogger('job').log(level, 'said %s', level)
"""


@pytest.mark.parametrize(
    ("level", "said"),
    [(None, [30]), ("WARNING", [30]), ("INFO", [20, 30]), ("DEBUG", [10, 20, 30]), ("", [30])],
)
def test_records_from_the_level_of_the_image_on_are_output(node: Node, level: str | None, said: list[int]) -> None:
    worker = node.ready(LOGS, env={} if level is None else {"SKYWARD_LOG_LEVEL": level})
    for _ in range(2):
        worker.call(1)
    lines = (node.folder / "g1" / "w0.err").read_text().splitlines()
    assert [line.rpartition(" ")[2] for line in lines] == [str(number) for number in said * 2]
    assert all("job: said" in line for line in lines) == bool(level)


def test_a_level_that_does_not_exist_costs_the_level_alone(node: Node) -> None:
    worker = node.ready(LOGS, env={"SKYWARD_LOG_LEVEL": "loud"})
    worker.call(1)
    text = (node.folder / "g1" / "w0.err").read_text()
    assert "SKYWARD_LOG_LEVEL is ignored: Unknown level: 'loud'" in text
    assert "said 30" in text
