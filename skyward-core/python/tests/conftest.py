"""Fixtures: an agent in a folder of its own, and workers below it; a mover for checkpoints of this process."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from skyward._core import modules, package_names, process_state, state
from skyward._sky import cluster
from skyward._tasks import payload

from .checkpoint_mover import FakeMover
from .client import AgentClient, WorkerClient, start_agent, start_spec


@pytest.fixture
def folder() -> Iterator[Path]:
    """A temporary folder with a short path, because sockets are created in it."""
    with tempfile.TemporaryDirectory(prefix="sky") as name:
        yield Path(name) / "n"


@pytest.fixture(autouse=True)
def no_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that run tasks in this process change it themselves."""
    monkeypatch.setattr(process_state, "begin", lambda: None)


@pytest.fixture
def payloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder in which this process, which is no worker, loads payloads."""
    monkeypatch.setattr(payload, "FOLDER", str(tmp_path / "payloads"))
    monkeypatch.setenv("SKYWARD_PAYLOADS", payload.FOLDER)
    yield
    for name in [name for name in sys.modules if package_names.is_root(name)]:
        modules.forget(name)


class Node:
    """An agent with its client, and the clients of its workers."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.line = start_agent(folder, **options)
        self.agent = AgentClient(folder)
        self.started: list[list[Any]] = []

    def worker(self, index: int = 0, **more: Any) -> WorkerClient:
        """Start one worker and connect to it."""
        spec = start_spec(**more)
        self.started = self.agent.start(spec, [index])
        worker = WorkerClient(self.started[0][2], generation=more.get("generation", 1))
        worker.gang = [1, 1, spec["cluster"]["total_nodes"] * spec["cluster"]["workers_per_node"]]
        return worker

    def ready(self, source: str | dict[str, str] = "", **more: Any) -> WorkerClient:
        """Return a worker after its `Hello`, with a payload loaded under the number 1."""
        worker = self.worker(**more)
        head, failure = worker.hello()
        assert head[5], failure
        if source:
            worker.load(1, source)
        return worker

    @property
    def pid(self) -> int:
        """The process id of the worker."""
        return int(self.started[0][1])

    def end(self) -> None:
        """End the agent, whatever its state."""
        try:
            os.kill(self.line["pid"], signal.SIGTERM)
        except ProcessLookupError:
            pass


@pytest.fixture
def make_node(folder: Path) -> Iterator[Callable[..., Node]]:
    """A factory of agents, which are ended after the test."""
    nodes: list[Node] = []

    def make(**options: Any) -> Node:
        nodes.append(Node(folder if not nodes else folder.with_name(f"n{len(nodes)}"), **options))
        return nodes[-1]

    yield make
    for node in nodes:
        node.end()


@pytest.fixture
def node(make_node: Callable[..., Node]) -> Node:
    """A single agent."""
    return make_node()


@pytest.fixture
def node_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a node whose pool has a storage, for this process."""
    folder.mkdir()
    monkeypatch.setenv("SKYWARD_PAYLOADS", str(folder / "payloads"))
    monkeypatch.setattr(state, "worker", None)
    monkeypatch.setattr(state, "gang", False)
    monkeypatch.setattr(state, "cluster", {"node": 3, "generation": 7, "storage": True})
    monkeypatch.setattr(cluster, "_cached", None)
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of data sets, which is not that of this host."""
    monkeypatch.setenv("SKYWARD_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "data"


@pytest.fixture
def ckpt(fake: FakeMover) -> Iterator[sky.Checkpoints]:
    """Open checkpoints of this process."""
    with sky.checkpoints("run-42") as opened:
        yield opened


@pytest.fixture
def fake(node_home: Path) -> Iterator[FakeMover]:
    """A mover at its place in the folder of this process's node."""
    made = FakeMover(node_home)
    yield made
    with suppress(OSError):
        made.die()
