"""The world as this worker sees it."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from . import _state
from ._network import interface_of


@dataclass(frozen=True)
class Peer:
    """A node of the pool and its private address."""

    node: int
    addr: str


@dataclass(frozen=True)
class Accelerator:
    """The accelerators of this node: kind, how many, and memory of each in GiB."""

    kind: str
    count: int = 1
    memory_gib: float | None = None


@dataclass(frozen=True)
class Network:
    """The network between the nodes; `interface` is what carries this node's address, where one of this host's does."""

    interface: str | None = None


@dataclass(frozen=True)
class InstanceInfo:
    """Where this worker stands in its pool. Outside of a pool it describes a world of one."""

    node: int = 0
    """Index of this node; node 0 is the head."""
    worker: int = 0
    """Index of this worker on its node."""
    total_nodes: int = 1
    """Nodes that are really there."""
    workers_per_node: int = 1
    accelerators: int = 0
    """Accelerators of this node."""
    total_accelerators: int = 0
    head_addr: str = "127.0.0.1"
    head_port: int = 0
    """The port that is reserved on the head for a framework's rendezvous, new in each generation; 0 outside a pool."""
    job_id: str = "local"
    addr: str = "127.0.0.1"
    peers: tuple[Peer, ...] = (Peer(0, "127.0.0.1"),)
    """All nodes, this one too, in the order of their index."""
    accelerator: Accelerator | None = None
    network: Network = field(default_factory=Network)
    generation: int = 0
    joined: bool = False
    """Whether the pool knows all workers as one world: they start and end together."""

    @property
    def global_worker_index(self) -> int:
        """This worker's index in the whole pool: its rank."""
        return self.node * self.workers_per_node + self.worker

    @property
    def rank(self) -> int:
        """The same as `global_worker_index`."""
        return self.global_worker_index

    @property
    def total_workers(self) -> int:
        """Workers in the whole pool."""
        return self.total_nodes * self.workers_per_node

    @property
    def is_head(self) -> bool:
        """Whether this is the worker of rank 0."""
        return self.global_worker_index == 0

    @cached_property
    def hostname(self) -> str:
        """The host's own name."""
        return socket.gethostname()

    @classmethod
    def parse(cls, cluster: Mapping[str, Any]) -> InstanceInfo:
        """From the `cluster` map that a worker gets, whose peers are in a file.

        Raises:
            OSError: the file of the peers cannot be read.
        """
        accelerator = cluster.get("accelerator")
        known = {name: cluster[name] for name in _PLAIN if cluster.get(name) is not None}
        return cls(
            **known,
            peers=tuple(Peer(peer["node"], peer["addr"]) for peer in _peers(cluster)),
            accelerator=Accelerator(**{k: accelerator[k] for k in ("kind", "count", "memory_gib") if k in accelerator})
            if accelerator
            else None,
            network=Network(interface_of(known["addr"]) if "addr" in known else None),
        )


def _peers(cluster: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    path = cluster.get("peers_file")
    if path is None:
        return cluster.get("peers") or ()
    import json

    with open(path, "rb") as file:
        peers: list[Mapping[str, Any]] = json.load(file)
    return peers


_PLAIN = (
    "node",
    "worker",
    "total_nodes",
    "workers_per_node",
    "accelerators",
    "total_accelerators",
    "head_addr",
    "head_port",
    "job_id",
    "addr",
    "generation",
    "joined",
)

_cached: tuple[Mapping[str, Any] | None, InstanceInfo] | None = None


def instance_info() -> InstanceInfo:
    """Where this worker stands in its pool; a world of one outside of a pool.

    A process that the payload started sees its worker's place.
    """
    global _cached
    cluster = _state.cluster
    if _cached is None or _cached[0] is not cluster:
        spec: Mapping[str, Any] | None = cluster
        if spec is None and "SKYWARD_CLUSTER" in os.environ:
            import json

            spec = json.loads(os.environ["SKYWARD_CLUSTER"])
        _cached = (cluster, InstanceInfo() if spec is None else InstanceInfo.parse(spec))
    return _cached[1]
