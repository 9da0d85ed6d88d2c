"""Random numbers of calls: a call leaves those of its caller alone, and follows the seed of its task."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from skyward._libraries import generators, seeds
from skyward._libraries.seeds import follow

from .conftest import Node
from .pool import Pool

PAYLOAD = """
import importlib, random, sys, types

import numpy as np
import skyward as sky
from skyward._libraries import generators as _generators, seeds as _seeds

# What the plugin for Keras imports and calls.
keras = sys.modules["keras"] = types.ModuleType("keras")
keras.utils = types.SimpleNamespace(set_random_seed=lambda seed: (random.seed(seed), np.random.seed(seed)))

def draw(_=0):
    return [random.random(), float(np.random.random())]

def look(_=0):
    # Code takes seeds from these states without a draw.
    return [random.getstate()[1][0], int(np.random.get_state()[1][0])]

def reseed(_=0):
    random.seed(5), np.random.seed(5)
    return draw()

def deep(level):
    own = draw()
    below = [sky.submit(deep, level - 1) for _ in range(2)] if level else []
    return [own, *(future.result() for future in below), draw()]

def main(what, **more):
    return globals()["do_" + what](**more)

def do_alone(call):
    function = globals()[call]
    reseed(), draw()
    expected = [draw() for _ in range(4)]
    reseed(), draw()
    found, calls = [], []
    for _ in range(4):
        calls.append(sky.submit(function).result())
        calls.extend(sky.map(function, range(3)))
        found.append(draw())
    return [found == expected, len({str(drawn) for drawn in calls}), len(calls)]

def gauss(_=0):
    return random.gauss(0, 1)

def two(_=0):
    return [gauss(), gauss()]

def do_pairs(call, before):
    random.seed(3)
    own = [gauss() for _ in range(before)]
    drawn = [sky.submit(globals()[call]).result() for _ in range(3)]
    return [own + [gauss(), gauss()], drawn]

def do_chosen(kind):
    # The payload has chosen another generator for NumPy's functions.
    np.random.set_bit_generator(getattr(np.random, kind)(1))
    own = [normal()]
    drawn = [sky.submit(globals()[call]).result() for call in ("normal", "other", "normal")]
    return [own + [normal(), normal()], drawn]

def do_replaced():
    # As a library that wants numbers of the system does.
    random._inst = random.SystemRandom()
    return [sky.submit(abs).result(), sky.submit(gauss).result() != random.gauss(0, 1)]

def do_reloaded():
    sky.submit(abs).result()
    importlib.reload(random)
    random.seed(3)
    return [[random.random(), sky.submit(draw).result() and random.random()], random.Random(3).random()]

def do_unknown():
    _generators._python, _generators._is_python_known = None, True
    return do_alone("draw")

def normal(_=0):
    return np.random.standard_normal()

def twice(_=0):
    return [normal(), normal(), normal()]

def other(_=0):
    np.random.set_bit_generator(np.random.PCG64(1))
    return normal()

def abs(_=0):
    return 0

def do_reads(call, before):
    reads, read = [], np.random.get_state
    np.random.get_state = lambda **how: reads.append(how) or read(**how)
    np.random.seed(3)
    own = [normal() for _ in range(before)]
    drawn = []
    for _ in range(3):
        drawn.append(sky.submit(globals()[call]).result())
    own.append(normal())
    count = len(reads)
    drawn.append(sky.submit(globals()[call]).result())
    own.append(normal())
    return [own, drawn, count]

def below(level):
    return sky.submit(below, level - 1).result() if level else normal()

def do_undrawn():
    read = np.random.get_state
    before = str(read())
    np.random.get_state = None
    drawn = [sky.submit(below, 3).result() for _ in range(3)]
    return [drawn, str(read()) == before]

def do_seeded(seed):
    _seeds.begin(seed)
    first = [sky.submit(draw).result() for _ in range(3)]
    mapped = list(sky.map(draw, range(200)))
    chunks = [draw(), *sky.map(draw, range(5), chunksize=2)]
    return [first, mapped, chunks, deep(3), draw()]
"""


@pytest.fixture
def make_pool(node: Node) -> Callable[..., Pool]:
    def make(workers: int = 1) -> Pool:
        return Pool(node, workers, PAYLOAD)

    return make


@pytest.mark.parametrize(("workers", "call"), [(1, "draw"), (1, "reseed"), (1, "look"), (3, "draw"), (3, "reseed")])
def test_a_call_leaves_the_generators_of_its_caller_alone(
    make_pool: Callable[..., Pool], workers: int, call: str
) -> None:
    kept, different, calls = make_pool(workers).call(what="alone", call=call)
    assert kept
    # Calls that set no seed draw different numbers.
    assert different == (1 if call == "reseed" else calls)


def test_a_generator_whose_memory_is_not_known_is_left_alone_too(make_pool: Callable[..., Pool]) -> None:
    kept, different, calls = make_pool(1).call(what="unknown")
    assert kept
    assert different == calls


@pytest.mark.parametrize("kind", ["MT19937", "PCG64", "SFC64"])
def test_a_generator_that_the_payload_has_chosen_is_left_alone(make_pool: Callable[..., Pool], kind: str) -> None:
    own, drawn = make_pool(1).call(what="chosen", kind=kind)
    alone = np.random.RandomState(getattr(np.random, kind)(1))
    assert own == list(alone.standard_normal(3))
    assert len({*own, drawn[0], drawn[2]}) == 5


def test_calls_work_whatever_draws_for_the_module_random(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool(1)
    [own, first] = pool.call(what="reloaded")
    assert own[0] == first
    alone = random.Random(3)
    assert own == [alone.random(), alone.random()]
    assert pool.call(what="replaced") == [0, True]


def test_a_normal_number_that_is_kept_when_the_first_task_begins_stays_the_callers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(generators, "_numpy", None)
    np.random.seed(3)
    alone = np.random.RandomState(3).standard_normal(2)
    own = [np.random.standard_normal()]
    generator = generators.NumpyGenerator(np.random)
    restores: list[Callable[[], object]] = []
    generator.begin(restores)
    assert len(restores) == 1
    assert np.random.standard_normal() != alone[1]
    restores[0]()
    assert [*own, np.random.standard_normal()] == list(alone)


def test_what_began_is_restored_if_the_beginning_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    random.seed(3)
    np.random.seed(3)
    expected = random.Random(3).random(), np.random.RandomState(3).random_sample()

    def fail() -> bytes:
        raise KeyboardInterrupt

    generators._python, generators._is_python_known = None, False
    monkeypatch.setattr(generators, "_numpy", generators.NumpyGenerator(np.random))
    monkeypatch.setattr(generators, "_new_key", fail)
    with pytest.raises(KeyboardInterrupt), seeds.Apart():
        pass
    assert (random.random(), np.random.random_sample()) == expected


@pytest.mark.parametrize("before", [0, 1, 2])
@pytest.mark.parametrize("call", ["abs", "gauss", "two", "reseed"])
def test_pythons_normal_numbers_continue_after_calls(make_pool: Callable[..., Pool], call: str, before: int) -> None:
    # Python draws normal numbers in pairs too.
    own, drawn = make_pool(1).call(what="pairs", call=call, before=before)
    alone = random.Random(3)
    assert own == [alone.gauss(0, 1) for _ in range(before + 2)]
    assert len({str(one) for one in drawn}) == (3 if call in ("gauss", "two") else 1)


def test_the_child_of_a_fork_has_other_states() -> None:
    # Other tests leave any number of keys, also a single one, and the parent has to keep one.
    generators._keys.clear()
    generators._new_key()
    parent = generators._keys[-1]
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, generators._new_key()[:8])
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert os.read(reader, 8) != parent[:8]
    os.close(reader)
    os.close(writer)


def test_the_memory_of_pythons_generator_is_found() -> None:
    generator = generators.PythonGenerator(random)
    before = random.getstate()
    restores: list[Callable[[], object]] = []
    generator.begin(restores)
    assert len(restores) == 1
    begun = random.getstate()
    assert begun[1][-1] == 624
    assert begun != before
    random.gauss(0, 1)
    restores[0]()
    assert random.getstate() == before


def test_a_state_from_which_nobody_has_drawn_is_kept_without_reading_it(make_pool: Callable[..., Pool]) -> None:
    drawn, is_same = make_pool(1).call(what="undrawn")
    assert is_same
    assert len(set(drawn)) == 3


@pytest.mark.parametrize("before", [0, 1, 2])
@pytest.mark.parametrize("call", ["abs", "normal", "twice", "reseed", "other"])
def test_a_caller_draws_its_own_normal_numbers_whatever_its_calls_draw(
    make_pool: Callable[..., Pool], call: str, before: int
) -> None:
    # NumPy draws normal numbers in pairs, and keeps the second one.
    own, drawn, reads = make_pool(1).call(what="reads", call=call, before=before)
    assert own == list(np.random.RandomState(3).standard_normal(before + 2))
    different = {str(one) for one in drawn}
    assert len(different) == (4 if call in ("normal", "twice") else 1)
    assert reads == 3


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("seed", [7, 8])
def test_calls_draw_the_numbers_of_their_place_below_a_seed(
    make_pool: Callable[..., Pool], workers: int, seed: int
) -> None:
    first, mapped, chunks, tree, last = make_pool(workers).call(what="seeded", seed=seed)
    own = Numbers(seed)
    assert first == [Numbers(follow(seed, number)).draw() for number in (1, 2, 3)]
    assert mapped == [Numbers(follow(follow(seed, 4), place)).draw() for place in range(200)]
    assert chunks == [own.draw(), *(Numbers(follow(follow(seed, 5), place)).draw() for place in range(5))]
    assert tree == deep(own, seed, 3, 5)
    assert last == own.draw()


class Numbers:
    """The generators of a process after a seed."""

    def __init__(self, seed: int) -> None:
        self._random, self._numpy = random.Random(seed), np.random.RandomState(seed)

    def draw(self) -> list[float]:
        return [self._random.random(), float(self._numpy.random_sample())]


def deep(own: Numbers, seed: int, level: int, before: int) -> list[Any]:
    """What the payload's function of this name returns, if its caller has made `before` calls."""
    drawn = own.draw()
    seeds = [follow(seed, before + number) for number in (1, 2)] if level else []
    return [drawn, *(deep(Numbers(one), one, level - 1, 0) for one in seeds), own.draw()]


KERAS = """
import os, random
os.environ["KERAS_BACKEND"] = "jax"
import keras
import skyward as sky
from skyward._libraries import seeds as _seeds

def draw(_=0):
    return [float(keras.random.uniform(())), random.random()]

def main():
    _seeds.begin(7)
    own = draw()
    calls = [sky.submit(draw).result() for _ in range(2)] + list(sky.map(draw, range(5)))
    return [own, draw(), calls]
"""


@pytest.mark.frameworks
@pytest.mark.parametrize("workers", [1, 2])
def test_keras_draws_the_numbers_of_the_calls_place(node: Node, monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    import keras

    def drawn(seed: int, count: int = 1) -> list[list[float]]:
        keras.utils.set_random_seed(seed)
        return [[float(keras.random.uniform(())), random.random()] for _ in range(count)]

    first, second, calls = Pool(node, workers, KERAS).call()
    assert [first, second] == drawn(7, 2)
    places = [follow(7, 1), follow(7, 2), *(follow(follow(7, 3), place) for place in range(5))]
    assert calls == [drawn(seed)[0] for seed in places]
