"""What a task sees that is no part of a broadcast, and what its processes see."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Node
from .pool import Pool

PAYLOAD = """
    import multiprocessing, subprocess, sys
    import skyward as sky
    from skyward._sky.output import _selected

    TEXT = "import skyward as sky; print(sky.shard(list(range(8))), sky.is_head())"

    def see(_=None):
        return [sky.shard(list(range(8))), sky.is_head(), _selected("head")]

    def main(where):
        if where == "here":
            return see()
        if where == "fork":
            with multiprocessing.get_context("fork").Pool(1) as pool:
                return pool.map(see, [0])[0]
        return subprocess.run([sys.executable, "-c", TEXT], capture_output=True, text=True, check=True).stdout
"""

ALL = [0, 1, 2, 3, 4, 5, 6, 7]


@pytest.fixture
def pool(node: Node) -> Pool:
    """A pool without a world."""
    return Pool(node, 2, PAYLOAD, cluster={"joined": False})


@pytest.mark.parametrize("worker", [0, 1])
@pytest.mark.parametrize(
    ("where", "alone", "parts"),
    [
        ("here", [ALL, True, True], [[[0, 1], True, True], [[2, 3], False, False]]),
        ("fork", [ALL, True, True], [[[0, 1], True, True], [[2, 3], False, False]]),
        ("elsewhere", f"{ALL} True\n", ["[0, 1] True\n", "[2, 3] False\n"]),
    ],
)
def test_a_task_alone_has_everything_and_a_broadcast_has_parts(
    pool: Pool, worker: int, where: str, alone: Any, parts: list[Any]
) -> None:
    client = pool.workers[worker]
    assert client.call(1, where=where) == alone
    # An elastic pool has grown to four since this worker was started.
    client.gang = [1, 1, 4]
    assert client.call(1, where=where) == parts[worker]
    client.gang = None
    assert client.call(1, where=where) == alone


CALLS = """
    import threading, time
    import skyward as sky

    def see():
        return [sky.shard(list(range(8))), sky.is_head()]

    def main(wait):
        before, call = see(), sky.submit(see)
        if wait:
            return [before, call.result(), see()]
        # The worker does not see this wait, so the call runs on a thread beside it.
        while not call.done():
            time.sleep(0.01)
        return [before, call.result(), see()]
"""


@pytest.mark.parametrize("place", ["help", "aside", "run"])
def test_a_task_of_a_broadcast_without_a_world_submits_calls_which_have_everything(node: Node, place: str) -> None:
    pool = Pool(node, 2, CALLS, cluster={"joined": False})
    pool.workers[1].gang = [1, 1, 4]
    if place != "run":
        pool.running[0, 0, 0] = None  # the other worker is never free
    assert pool.call(1, wait=place != "aside") == [[[2, 3], False], [ALL, True], [[2, 3], False]]
    assert pool.counts[place] == 1
