"""Decorators for frameworks: with fakes, and with installed frameworks in worlds of two workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import skyward as sky
from skyward._core import state, wire
from skyward._libraries import world as _world
from skyward.integrations import _jax_world, _torch_world

from .conftest import Node
from .test_shard import _alone, on_rank  # noqa: F401


@pytest.fixture
def met(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace the rendezvous, because the other ranks do not exist."""
    places: list[str] = []

    def meet(info: sky.InstanceInfo, timeout: float, deadline: float) -> None:
        places.append(f"{info.head_addr}:{info.head_port}")

    monkeypatch.setattr(_jax_world, "meet", meet)
    monkeypatch.setattr(_jax_world, "_platform", lambda: "gpu")
    monkeypatch.setattr(_torch_world, "meet", meet)
    return places


@pytest.fixture(autouse=True)
def _environment() -> Iterator[None]:
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


class Recorder:
    """Records the calls of its functions."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.ready = False
        self.used = False

    def function(self, name: str, ready: bool = False) -> Any:
        def record(*args: Any, **kwargs: Any) -> None:
            self.calls.append((name, args, kwargs))
            self.ready |= ready

        return record


def module(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(members)
    monkeypatch.setitem(sys.modules, name, made)
    return made


@pytest.fixture
def fake_torch(monkeypatch: pytest.MonkeyPatch, met: list[str]) -> Recorder:
    recorder = Recorder()
    dist = module(
        monkeypatch,
        "torch.distributed",
        is_initialized=lambda: recorder.ready,
        is_nccl_available=lambda: True,
        HashStore=lambda: "memory",
        TCPStore=lambda *args, **kwargs: SimpleNamespace(set_timeout=lambda timeout: None, args=args),
        destroy_process_group=recorder.function("destroy_process_group"),
        init_process_group=recorder.function("init_process_group", ready=True),
    )
    cuda = module(
        monkeypatch,
        "torch.cuda",
        is_available=lambda: False,
        device_count=lambda: 2,
        set_device=recorder.function("set_device"),
    )
    module(monkeypatch, "torch", distributed=dist, cuda=cuda, device=lambda *args: args, __version__="2")
    return recorder


@pytest.fixture
def fake_jax(monkeypatch: pytest.MonkeyPatch, met: list[str]) -> Recorder:
    recorder = Recorder()
    distributed = SimpleNamespace(
        initialize=recorder.function("initialize", ready=True), is_initialized=lambda: recorder.ready
    )
    module(monkeypatch, "jax", distributed=distributed, devices=list)
    # Another test may have used the real module in this process.
    module(monkeypatch, "jax._src.xla_bridge", backends_are_initialized=lambda: recorder.used)
    return recorder


@pytest.fixture
def fake_keras(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    current: list[Any] = []
    distribution = SimpleNamespace(
        distribution=lambda: current[-1] if current else None,
        list_devices=lambda: ["cpu:0", "cpu:1"],
        set_distribution=current.append,
        DataParallel=lambda **options: options,
    )
    module(
        monkeypatch,
        "keras",
        backend=SimpleNamespace(backend=lambda: os.environ["KERAS_BACKEND"]),
        utils=SimpleNamespace(set_random_seed=recorder.function("seed")),
        distribution=distribution,
        current=current,
    )
    lib = SimpleNamespace(initialize_rng=recorder.function("initialize_rng"))
    # In the package, the name of this module refers to the decorator.
    monkeypatch.setattr(sys.modules["skyward.integrations.keras"], "guard", recorder.function("guard"))
    module(monkeypatch, "keras.src.backend.jax", distribution_lib=lib)
    return recorder


def test_torch_joins_by_the_rank_of_the_worker(fake_torch: Recorder) -> None:
    on_rank(5, 2, 4)

    @sky.integrations.torch
    def train() -> list[str]:
        return [os.environ[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR")]

    assert train() == ["5", "8", "1", "4", "10.0.0.1"]
    assert train()[0] == "5"
    name, (backend,), options = fake_torch.calls[0]
    assert (name, backend, options["rank"], options["world_size"]) == ("init_process_group", "gloo", 5, 8)
    assert options["store"].args == ("10.0.0.1", 1, 8, False)
    assert len(fake_torch.calls) == 1


def test_torch_takes_the_workers_own_device(fake_torch: Recorder) -> None:
    sys.modules["torch.cuda"].is_available = lambda: True  # type: ignore[attr-defined]
    on_rank(3, 2, 2)
    assert state.cluster
    state.cluster["accelerators"] = 2
    sky.integrations.torch(backend=None)(lambda: None)()
    assert fake_torch.calls[0] == ("set_device", (1,), {})
    assert fake_torch.calls[1][1] == ("nccl",)
    assert fake_torch.calls[1][2]["device_id"] == ("cuda", 1)


def test_jax_gets_all_arguments(fake_jax: Recorder) -> None:
    on_rank(1, 2)

    @sky.integrations.jax()
    def train() -> str:
        return os.environ["JAX_COORDINATOR_ADDRESS"]

    assert train() == "10.0.0.1:1"
    assert train() == "10.0.0.1:1"
    assert [name for name, _, _ in fake_jax.calls] == ["initialize"]
    options = fake_jax.calls[0][2]
    assert options.pop("initialization_timeout") > 200
    assert options == {
        "coordinator_address": "10.0.0.1:1",
        "num_processes": 2,
        "process_id": 1,
        "local_device_ids": [0],
        "coordinator_bind_address": "10.0.0.1:1",
    }


def test_jax_that_was_used_before_is_refused_before_the_others_wait(fake_jax: Recorder, met: list[str]) -> None:
    on_rank(1, 2)
    fake_jax.used = True
    with pytest.raises(RuntimeError, match=r"rank 1 has used JAX already.*add `plugins::jax\(\)`"):
        sky.integrations.jax(lambda: None)()
    assert (met, fake_jax.calls) == ([], [])


@pytest.mark.parametrize(("visible", "devices"), [(None, [1]), ("0,1", [1]), ("3", [0])])
def test_jax_takes_the_workers_own_device(fake_jax: Recorder, visible: str | None, devices: list[int]) -> None:
    on_rank(1, 1, 2)
    assert state.cluster
    state.cluster["accelerators"] = 2
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    if visible is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible
    sky.integrations.jax(lambda: None)()
    assert fake_jax.calls[0][2]["local_device_ids"] == devices


@pytest.mark.parametrize("name", ["jax", "torch", "transformers", "keras"])
def test_a_pool_that_does_not_know_of_the_world_is_refused(
    name: str, fake_keras: Recorder, fake_jax: Recorder, fake_torch: Recorder
) -> None:
    on_rank(1, 2)
    assert state.cluster
    state.cluster["joined"] = False
    os.environ["KERAS_BACKEND"] = "jax"
    with pytest.raises(RuntimeError, match=r"joins 2 workers into one world.*`\.payload::<…>\(\)`.*`plugins::jax\(\)`"):
        getattr(sky.integrations, name)(lambda: None)()
    assert (fake_jax.calls, fake_torch.calls) == ([], [])


def test_keras_sets_up_once(fake_keras: Recorder, fake_jax: Recorder) -> None:
    on_rank(1, 2)
    keras: Any = sys.modules["keras"]

    @sky.integrations.keras(backend="jax", seed=7)
    def train() -> str:
        return os.environ["KERAS_BACKEND"]

    os.environ["KERAS_BACKEND"] = "jax"
    assert train() == "jax"
    assert train() == "jax"
    assert keras.current == [{"devices": ["cpu:0", "cpu:1"], "auto_shard_dataset": False}]
    assert [name for name, _, _ in fake_keras.calls] == ["seed", "guard", "seed", "guard"]
    assert len(fake_jax.calls) == 1


def test_keras_with_another_backend_says_so(fake_keras: Recorder) -> None:
    os.environ["KERAS_BACKEND"] = "torch"
    with pytest.raises(RuntimeError, match=r"backend torch before .* asked for jax"):
        sky.integrations.keras(lambda: None)()
    with pytest.raises(ValueError, match="jax, torch, tensorflow"):
        sky.integrations.keras(backend="theano")


def test_transformers_only_sets_the_environment(fake_torch: Recorder) -> None:
    on_rank(1, 2)

    @sky.integrations.transformers
    def tune() -> list[str | None]:
        return [os.environ.get(name) for name in ("RANK", "LOCAL_RANK", "ACCELERATE_USE_CPU")]

    assert tune() == ["1", "0", "true"]
    assert fake_torch.calls == []


def test_transformers_makes_the_group_with_the_backend_that_is_chosen(fake_torch: Recorder) -> None:
    on_rank(1, 2)
    sky.integrations.transformers(backend="gloo")(lambda: None)()
    assert [(name, args) for name, args, _ in fake_torch.calls] == [("init_process_group", ("gloo",))]


def test_transformers_alone_computes_on_the_accelerator_of_its_worker(
    fake_torch: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")

    @sky.integrations.transformers
    def tune() -> list[str | None]:
        return [os.environ.get(name) for name in names]

    def run(gang: bool) -> list[str | None]:
        # The worker does this before each task.
        monkeypatch.setattr(state, "gang", gang)
        _world.show(gang)
        return tune()

    for name, value in {"_started": {}, "_shown": True, "_may_be_joined": True, "_other": None}.items():
        monkeypatch.setattr(_world, name, value)
    cuda: Any = sys.modules["torch.cuda"]
    on_rank(6, 2, 4)
    assert state.cluster is not None
    state.cluster["accelerators"] = 4
    monkeypatch.setattr(cuda, "is_available", lambda: True)
    monkeypatch.setattr(cuda, "device_count", lambda: 4)
    alone, gang = ["0", "1", "2", "1"], ["6", "8", "2", "4"]
    assert run(gang=False) == alone
    group = {"store": "memory", "rank": 0, "world_size": 1}
    made = ("init_process_group", ("cpu:gloo,cuda:nccl",), group)
    assert fake_torch.calls == [("set_device", (2,), {}), made]
    # What a task on a single worker has set must not be visible in the gang, and the other way
    # round.
    assert run(gang=True) == gang
    assert run(gang=False) == alone
    assert run(gang=True) == gang
    # With one accelerator, `Trainer` uses the right one already.
    monkeypatch.setattr(cuda, "device_count", lambda: 1)
    monkeypatch.setattr(_world, "_other", _world._State.before())
    assert run(gang=False) == [None] * 4


def test_a_task_that_one_worker_runs_alone_joins_nothing(
    fake_keras: Recorder, fake_jax: Recorder, fake_torch: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_rank(1, 2)
    keras: Any = sys.modules["keras"]
    os.environ["KERAS_BACKEND"] = "jax"
    train = sky.integrations.keras(backend="jax")(sky.integrations.torch(sky.integrations.transformers(lambda: 1)))
    monkeypatch.setattr(state, "gang", False)
    assert train() == 1
    assert (fake_jax.calls, keras.current[-1]) == ([], None)
    alone = {"store": "memory", "rank": 0, "world_size": 1}
    assert fake_torch.calls == [("init_process_group", ("gloo",), alone)]
    assert "RANK" not in os.environ
    monkeypatch.setattr(state, "gang", True)
    train()
    assert len(fake_jax.calls) == 1
    assert keras.current[-1] is not None


@pytest.mark.parametrize("name", ["torch", "jax", "transformers"])
def test_nothing_happens_in_a_world_of_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = dict(os.environ)
    # The framework must not even be imported: it may be missing.
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert getattr(sky.integrations, name)()(lambda: "ran")() == "ran"
    assert os.environ == before


def test_a_decorated_generator_stays_one(fake_jax: Recorder) -> None:
    on_rank(0, 2)

    @sky.compute
    @sky.stdout(only="head")
    @sky.integrations.jax()
    def items() -> Iterator[int]:
        yield 1

    running = items()
    assert fake_jax.calls == []
    assert list(running) == [1]
    assert len(fake_jax.calls) == 1


def world(node: Node, source: str, end: bool = True) -> list[Any]:
    """Return what the payload returns on the two workers of a world."""
    node.agent.send([wire.RESERVE_PORT, 1])
    port = node.agent.expect(wire.PORT)[0][3]
    cluster = {"head_port": port, "total_nodes": 1}
    workers = [node.ready(source, index=index, workers=2, cluster=cluster) for index in range(2)]
    for worker in workers:
        worker.socket.settimeout(120)
    tasks = [worker.start(1) for worker in workers]
    outcomes = [worker.outcome(task) for worker, task in zip(workers, tasks, strict=True)]
    assert all(head[0] == wire.RESULT for head, _ in outcomes), outcomes
    for worker in workers if end else ():
        worker.send([wire.BYE])
    return [value for _, value in outcomes]


@pytest.mark.frameworks
def test_a_world_of_two_in_jax(node: Node) -> None:
    source = """
import skyward as sky
@sky.compute
@sky.integrations.jax()
def main():
    import jax
    from jax.experimental import multihost_utils
    got = multihost_utils.process_allgather(jax.numpy.array([jax.process_index() + 1.0]))
    return jax.process_count(), got.ravel().tolist()
"""
    assert world(node, source) == [[2, [1.0, 2.0]]] * 2


@pytest.mark.frameworks
def test_a_stop_reaches_workers_whose_signals_jax_has_taken(node: Node) -> None:
    source = """
import atexit
import skyward as sky
@sky.integrations.jax()
def main():
    import jax
    atexit.register(lambda: print("left"))
    return jax.process_count()
"""
    assert world(node, source, end=False) == [2, 2]
    node.agent.send([wire.STOP, 1, 1, [0, 1], 30.0])
    node.agent.socket.settimeout(60)
    for _ in range(2):
        assert node.agent.expect(wire.EXITED)[0][4:7] == [0, None, False]
    assert (node.folder / "g1" / "w0.out").read_text().endswith("left\n")


@pytest.mark.frameworks
def test_an_array_of_two_processes_is_refused_with_advice(node: Node) -> None:
    source = """
import skyward as sky
@sky.integrations.jax()
def main():
    import jax
    mesh = jax.sharding.Mesh(jax.devices(), "d")
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d"))
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    x = jax.make_array_from_callback((2,), spread, lambda index: jax.numpy.ones(2)[index])
    y = jax.make_array_from_callback((2,), whole, lambda index: jax.numpy.ones(2)[index])
    from skyward._values import codec as values
    from skyward._values.errors import EncodeError
    values.encode(y)
    try:
        values.encode({"x": [x]})
    except EncodeError as error:
        return error.path, error.reason
"""
    for path, reason in world(node, source):
        assert path == ".x[0]"
        assert "process_allgather" in reason


@pytest.mark.frameworks
def test_a_world_of_two_in_keras_trains_alike(node: Node) -> None:
    source = """
import skyward as sky
@sky.integrations.keras(backend="jax", seed=3)
def main():
    import keras, numpy as np
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 4)).astype("float32")
    x, y = sky.shard(x, (x.sum(1) > 0).astype("int32"), drop_last=True, shuffle=True, seed=1)
    model = keras.Sequential([keras.layers.Dense(8, activation="relu"), keras.layers.Dense(2, activation="softmax")])
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
    history = model.fit(x, y, epochs=2, batch_size=8, verbose=0)
    return len(x), history.history["loss"]
"""
    first, second = world(node, source)
    assert first == second
    assert first[0] == 32


@pytest.mark.frameworks
def test_a_world_of_two_in_torch(node: Node) -> None:
    source = """
import skyward as sky
@sky.integrations.torch
def main():
    import torch, torch.distributed as dist
    x = torch.tensor([dist.get_rank() + 1.0])
    dist.all_reduce(x)
    dist.barrier()
    dist.destroy_process_group()
    return dist.is_initialized(), x
"""
    assert [value[0] for value in world(node, source)] == [False, False]
