"""Calls that are cancelled at random moments, on one worker that helps itself and on two workers."""

from __future__ import annotations

import os
from random import Random
from time import monotonic

import pytest

from skyward._core import wire

from .client import DEADLINE
from .conftest import Node
from .pool import Pool

ROUNDS = int(os.environ.get("SKYWARD_CALL_ROUNDS", "40"))

PAYLOAD = """
import concurrent.futures
import time

import skyward as sky

def tree(levels, wait):
    if levels == 0:
        return 1
    futures = [sky.submit(tree, levels - 1, wait) for _ in range(3)]
    if wait == "futures" and levels == 2:
        concurrent.futures.wait(futures)
    total = 0
    for future in sky.as_completed(futures) if wait == "completed" else futures:
        try:
            total += future.result()
        except (concurrent.futures.CancelledError, sky.CallError):
            pass
        except KeyboardInterrupt:
            if wait != "stubborn":
                raise
    return total

def double(number):
    return 2 * number

def main(what, **more):
    if what == "double":
        return sky.submit(double, 4).result()
    return tree(**more)
"""


@pytest.mark.parametrize("wait", ["result", "completed", "stubborn", "futures"])
@pytest.mark.parametrize("workers", [1, 2])
def test_calls_that_are_cancelled_at_any_moment(node: Node, workers: int, wait: str) -> None:
    pool = Pool(node, workers, PAYLOAD)
    pool.aside_after = 0.02
    chance = Random(workers)
    cut = 0
    for round_number in range(ROUNDS):
        task = pool.start(0, what="tree", levels=3, wait=wait)
        # The moment is random on purpose: there is no condition to wait for.
        at = monotonic() + chance.uniform(0.0, 0.15)
        while monotonic() < at and task not in pool.outcomes:
            pool.step(0.001)
        calls = pool.calls[0]
        if chance.random() < 0.3 and calls is not None:
            calls.connect()
            cut += 1
        doomed = chance.choice(list(pool.running) or [task])
        again = monotonic() + 0.1
        if doomed in pool.running:
            pool.interrupt(doomed)
        end = monotonic() + DEADLINE
        while task not in pool.outcomes:
            pool.step(0.001)
            assert monotonic() < end, (round_number, doomed, pool.counts, pool.running, pool.waiting, pool.queued)
            if monotonic() > again and doomed in pool.running:
                pool.interrupt(doomed)
                again = monotonic() + 0.1
        ok, value = pool.outcome(task)
        assert ok or value["kind"] == "cancelled", value
        pool.settle()
        assert pool.call(what="double") == 8
        # A result may arrive before the message about the end of the last wait, over another
        # connection.
        while any(pool.waiting):
            pool.step(0.001)
            assert monotonic() < end, pool.waiting
    assert wire.EXITED not in [head[0] for head, _ in node.agent.seen]


EVERY_LINE = """
import os
import signal
import sys

import numpy as np
import skyward as sky
from skyward._core import state

def double(number):
    return 2 * number

def doubled(array, number):
    return float(array[0]) * number

def interrupt():
    state.worker.session.cancelled = True
    os.kill(os.getpid(), signal.SIGINT)

def finalize():
    try:
        sky.submit(double, 1)
    except sky.CallError:
        pass

def main(what):
    act = globals()[what]
    worker, quiet, place, reached = state.worker, [], 0, True
    sky.submit(double, 0).result()
    while reached:
        place, count, reached, line = place + 1, 0, False, None

        def trace(frame, event, argument):
            nonlocal count, reached, line
            if frame.f_code.co_filename.split("/")[-2:-1] not in (["_calls"], ["_nested"]):
                return None
            if event == "line":
                count += 1
                if count == place:
                    reached, line = True, f"{frame.f_code.co_filename}:{frame.f_lineno}"
                    act()
            return trace

        try:
            sys.settrace(trace)
            # Another array each time, for the store.
            array = np.full(40_000, 2.0 + place)
            assert sky.submit(doubled, array, place).result() == (2 + place) * place
            sys.settrace(None)
            if reached:
                quiet.append(line)
        except KeyboardInterrupt:
            sys.settrace(None)
        worker.session.cancelled = worker.runner.interrupted = worker.hub.stack[0].interrupted = False
        assert not worker.hub.lock._is_owned()
        assert len(worker.hub.stack) == 1 and worker.hub.main_wait is None, place
        assert sky.submit(double, place).result() == 2 * place, place
    return [place, quiet]
"""


@pytest.mark.parametrize("what", ["interrupt", "finalize"])
def test_an_interrupt_or_a_finalizer_at_every_line(node: Node, what: str) -> None:
    pool = Pool(node, 1, EVERY_LINE)
    task = pool.start(0, what=what)
    ok, value = pool.outcome(task, 100)
    assert ok, value
    places, quiet = value
    assert places > 100
    if what == "interrupt":
        # It was raised at each line.
        assert quiet == []
    pool.settle()
