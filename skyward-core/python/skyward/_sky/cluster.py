"""The worker's place in its pool: `sky.instance_info()`."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from .._core import state
from .network import interface_of


@dataclass(frozen=True)
class Peer:
    """A node of the pool.

    Attributes:
        node: its index.
        addr: its private address, by which the nodes reach each other.
    """

    node: int
    addr: str


@dataclass(frozen=True)
class Accelerator:
    """The accelerators of a node.

    Attributes:
        kind: the model without form factor and size, such as `"H100"`.
        count: how many the node has.
        memory_gib: memory of each accelerator in GiB, or None if unknown.
    """

    kind: str
    count: int = 1
    memory_gib: float | None = None


@dataclass(frozen=True)
class Network:
    """The network between the nodes.

    Attributes:
        interface: the network interface with this node's address, such as `"eth0"`, or None if no
            interface of this host has it.
    """

    interface: str | None = None


@dataclass(frozen=True)
class InstanceInfo:
    """This worker's place in its pool. Outside a pool, it describes a world of one worker."""

    node: int = 0
    """Index of this node; node 0 is the head."""
    worker: int = 0
    """Index of this worker on its node, from 0."""
    total_nodes: int = 1
    """Number of nodes that exist; in a partial pool, this may be fewer than were requested."""
    workers_per_node: int = 1
    accelerators: int = 0
    """Number of accelerators of this node."""
    total_accelerators: int = 0
    head_addr: str = "127.0.0.1"
    head_port: int = 0
    """A port that is reserved on node 0 for a framework's rendezvous; new in each generation, 0
    outside a pool.
    """
    job_id: str = "local"
    addr: str = "127.0.0.1"
    peers: tuple[Peer, ...] = (Peer(0, "127.0.0.1"),)
    """All nodes, including this one, in the order of their indexes."""
    accelerator: Accelerator | None = None
    network: Network = field(default_factory=Network)
    generation: int = 0
    joined: bool = False
    """Whether all workers are joined into one world: they start and end together."""

    @property
    def global_worker_index(self) -> int:
        """This worker's rank: its index among all workers of the pool, from 0."""
        return self.node * self.workers_per_node + self.worker

    @property
    def rank(self) -> int:
        """This worker's rank; the same as `global_worker_index`."""
        return self.global_worker_index

    @property
    def total_workers(self) -> int:
        """Number of workers in the whole pool."""
        return self.total_nodes * self.workers_per_node

    @property
    def is_head(self) -> bool:
        """Whether this worker has rank 0."""
        return self.global_worker_index == 0

    @cached_property
    def hostname(self) -> str:
        """The host name of this node."""
        return socket.gethostname()

    @classmethod
    def parse(cls, cluster: Mapping[str, Any]) -> InstanceInfo:
        """Create the object from a worker's `cluster` map, whose peers are in a file.

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


def is_in_broadcast() -> bool:
    """Return whether this code belongs to a task of a broadcast, and to no call that such a task has submitted."""
    return state.gang and not _is_in_call()


def is_in_gang() -> bool:
    """Return whether the running task is part of a gang: of a broadcast in a joined world."""
    return state.gang and instance_info().joined


def _is_in_call() -> bool:
    """Return whether this thread runs a call with which the worker helps while its task waits."""
    hub = None if state.worker is None else state.worker.hub
    return hub is not None and hub.is_in_call()


def count_ranks() -> int:
    """Return how many ranks run this task; 1 for a call, and for a task that is no part of a broadcast.

    A process that the payload has started sees the ranks of the task that ran at its start.
    """
    if _is_in_call():
        return 1
    if state.ranks is not None:
        return state.ranks
    inherited = os.environ.get(state.RANKS)
    return instance_info().total_workers if inherited is None else int(inherited)


def most_workers() -> int:
    """Return how many workers the pool may have, and so how many calls may run at a time.

    An elastic pool grows only while more tasks wait than it has workers, so its size at the moment
    must not limit the calls.
    """
    return instance_info().total_workers if state.most_workers is None else state.most_workers


def rank_of_task() -> int:
    """Return this worker's rank among those that run this task; 0 if it runs the task alone."""
    return 0 if count_ranks() == 1 else instance_info().global_worker_index


def is_head() -> bool:
    """Return whether this worker has rank 0 in the world that the running task sees."""
    return rank_of_task() == 0


def node_folder(asker: str) -> str | None:
    """Return the folder of this worker's node; None outside a pool.

    Args:
        asker: the function that needs it, for the message.

    Raises:
        RuntimeError: the payload has removed the variable that names it.
    """
    payloads = os.environ.get("SKYWARD_PAYLOADS")
    if payloads is not None:
        return os.path.dirname(payloads)
    if state.worker is not None:
        raise RuntimeError(
            f"{asker} cannot find the node's folder: the payload has removed SKYWARD_PAYLOADS from os.environ"
        )
    return None


def inherited() -> Mapping[str, Any] | None:
    """Return the place of the worker that has started this process; None outside a pool."""
    text = os.environ.get("SKYWARD_CLUSTER")
    if text is None:
        return None
    import json

    place: Mapping[str, Any] = json.loads(text)
    return place


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
    """Return this worker's place in its pool: node, rank, accelerators, addresses.

    Outside a pool, the result describes a world of one worker on one node. A process that the
    payload started sees the place of its worker.

    Example:
        info = sky.instance_info()
        print(f"rank {info.rank} of {info.total_workers} on node {info.node}")
    """
    global _cached
    cluster = state.cluster
    if _cached is None or _cached[0] is not cluster:
        spec = inherited() if cluster is None else cluster
        _cached = (cluster, InstanceInfo() if spec is None else InstanceInfo.parse(spec))
    return _cached[1]
