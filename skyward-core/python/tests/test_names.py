"""Objects of payloads that are pickled by name mean the same on all workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .client import WorkerClient, start_spec
from .conftest import Node

POWER = """
    import dataclasses, enum, functools, typing
    from skyward._calls.pickles import dumps, loads

    @functools.cache
    def cached(x):
        return x ** {n}

    @functools.lru_cache(maxsize=2)
    def bounded(x):
        return x ** {n}

    class Powers:
        @staticmethod
        @functools.cache
        def nested(x):
            return x ** {n}

    @dataclasses.dataclass
    class Power:
        base: int
        def __call__(self, x):
            return self.base ** x * {n}

    class Kind(enum.Enum):
        OF = 1
        def __call__(self, x):
            return x ** {n}

    T = typing.TypeVar("T", bound="P{n}")
    Money = typing.NewType("Money", int)
    Money.n = T_n = {n}
    things = {{
        "cached": cached,
        "bounded": bounded,
        "nested": Powers.nested,
        "partial": functools.partial(cached),
        "instance": Power(2),
        "member": Kind.OF,
        "var": T,
        "new": Money,
    }}

    def main(name, data=None):
        if data is None:
            return bytes(dumps(things[name]))
        thing = loads(data)
        if name == "var":
            return thing is T
        return thing.n if name == "new" else thing(3)
"""


@pytest.fixture
def workers(node: Node) -> list[WorkerClient]:
    """Two workers with two payloads of equal file names, loaded in another order."""
    started = node.agent.start(start_spec(workers=2), [0, 1])
    clients = [WorkerClient(path) for _, _, path in started]
    for client, order in zip(clients, ([2, 3], [3, 2]), strict=True):
        client.hello()
        for n in order:
            client.load(n, POWER.format(n=n), main="power.py")
            client.call(n, name="cached")
    return clients


def test_what_pickles_itself_by_name_is_that_of_its_own_payload(workers: list[WorkerClient]) -> None:
    first, second = workers
    for n in (2, 3):
        expected: dict[str, Any] = dict.fromkeys(("cached", "bounded", "nested", "partial", "member"), 3**n)
        expected |= {"instance": 8 * n, "var": True, "new": n}
        for name, value in expected.items():
            data = first.call(n, name=name)
            assert second.call(n, name=name, data=data) == value, (n, name)


def test_a_name_of_a_payload_that_is_not_here_is_explained(make_node: Callable[..., Node]) -> None:
    worker = make_node().ready()
    loads = """
        import pickle
        def main():
            return pickle.loads(b"cpayload_" + b"ab" * 16 + b".power\\ncached\\n.")
    """
    worker.load(1, loads)
    failure = worker.failure(1)
    assert "is a payload that is not loaded on this node; call one of its functions here first" in failure["message"]


PICKLED_ONCE = """
    from skyward._calls.pickles import dumps
    times = []
    class Counted:
        def __reduce__(self):
            times.append(1)
            return int, (1,)
    def main():
        dumps([Counted(), lambda: 1])
        return len(times)
"""


def test_a_call_is_pickled_once(node: Node) -> None:
    assert node.ready(PICKLED_ONCE).call(1) == 1


def test_errors_have_the_users_names(node: Node) -> None:
    raises = """
        class Problem(Exception): ...
        def main(what):
            if what == "class": raise Problem(__name__, __file__)
            if what == "attribute": import payload_helper
            import sys
            return sys.modules[__name__].missing
    """
    worker = node.worker()
    worker.hello()
    worker.load(1, raises, main="jobs/train.py")
    problem = worker.failure(1, what="class")
    assert (problem["module"], problem["type"]) == ("train", "Problem")
    assert problem["message"].endswith("'jobs/train.py')")
    assert 'File "jobs/train.py", line 3, in main\n    if what == "class": raise Problem' in problem["traceback"]
    assert "train.Problem: " in problem["traceback"]
    assert worker.failure(1, what="missing")["message"] == "module 'train' has no attribute 'missing'"
    for failure in (problem, worker.failure(1, what="attribute")):
        assert str(node.folder) not in str(failure)


@pytest.mark.parametrize(
    "statement", ["from .nothere import x", "from trainer.nothere import x", "import trainer.nothere"]
)
def test_a_missing_module_of_a_payload_is_no_package_of_an_image(node: Node, statement: str) -> None:
    worker = node.worker()
    worker.hello()
    worker.load(1, {"trainer/main.py": f"def main():\n    {statement}\n", "trainer/b.py": ""}, main="trainer/main.py")
    failure = worker.failure(1)
    assert failure["message"] == "No module named 'trainer.nothere'"
    assert failure["missing"] == {"module": "trainer.nothere"}
