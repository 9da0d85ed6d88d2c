"""The torch hook, with real PyTorch on the CPU; skipped if PyTorch is not installed."""

from __future__ import annotations

import pytest
from skyward import InstanceInfo
from skyward.integrations._torch_world import device_index

from .ranks import World, require, run_alone, torch

require("torch")


@pytest.mark.parametrize(("nodes", "workers"), [(2, 1), (1, 2)])
def test_all_workers_are_ranks_of_one_process_group(nodes: int, workers: int) -> None:
    body = """
    import os, torch, torch.distributed as dist
    total = torch.tensor([dist.get_rank() + 1.0])
    dist.all_reduce(total)
    names = ["MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"]
    names += ["GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"]
    env = {name: os.environ[name] for name in names}
    result = {"total": total.item(), "backend": dist.get_backend(), "size": dist.get_world_size(), "env": env}
    """
    after = """
    import os, torch.distributed as dist
    assert not dist.is_initialized()
    assert "MASTER_ADDR" not in os.environ
    """
    with World(nodes, workers) as world:
        ranks = world.run(torch(collective_timeout=30.0), body=body, after=after)
        for index, rank in enumerate(ranks):
            assert rank.code == 0, rank.error
            assert {**rank.result, "env": None} == {"total": 3.0, "backend": "gloo", "size": 2, "env": None}
            node, worker = divmod(index, workers)
            assert rank.result["env"] == {
                "MASTER_ADDR": world.addresses[0],
                "MASTER_PORT": str(world.port),
                "WORLD_SIZE": "2",
                "RANK": str(index),
                "LOCAL_RANK": str(worker),
                "LOCAL_WORLD_SIZE": str(workers),
                "GROUP_RANK": str(node),
                "GLOO_SOCKET_IFNAME": "lo",
                "NCCL_SOCKET_IFNAME": "lo",
            }


def test_ddp_on_one_rank_alone_is_a_world_of_one() -> None:
    body = """
    import os, torch, torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    def train():
        model = DistributedDataParallel(torch.nn.Linear(2, 1))
        model(torch.ones(4, 2)).sum().backward()
        total = torch.ones(1)
        dist.all_reduce(total)
        return [int(total), dist.get_rank(), os.environ.get("RANK"), os.environ.get("MASTER_ADDR")]
    rank = dist.get_rank()
    # The other rank runs nothing meanwhile: it waits in the next gang.
    alone = task(train, gang=False) if rank == 1 else None
    result = [alone, task(train, gang=True)]
    """
    after = "import torch.distributed as dist; assert not dist.is_initialized()"
    with World(2) as world:
        ranks = world.run(torch(), body=body, after=after)
        assert [rank.code for rank in ranks] == [0, 0], [rank.error for rank in ranks]
        address = world.addresses[0]
        assert ranks[0].result == [None, [2, 0, "0", address]]
        assert ranks[1].result == [[1, 0, None, None], [2, 1, "1", address]]


def test_a_rank_that_does_not_come_is_named() -> None:
    with World(3) as world:
        head, other = world.run(torch(timeout=4.0), body="result = 1", ranks=[0, 2])
        text = (
            f"TimeoutError: 2 of 3 ranks came to the rendezvous at {world.addresses[0]}:{world.port} within 4 s; "
            f"missing: rank 1 (node 1, worker 0, {world.addresses[1]}). "
            "Their workers ended or cannot reach that address: their logs say which"
        )
        assert text in (head.exception, other.exception)
        for rank in (head, other):
            assert f"{world.addresses[0]}:{world.port}" in rank.exception
            assert rank.code == 1


def test_a_missing_head_is_reported_with_its_address() -> None:
    with World(2) as world:
        (rank,) = world.run(torch(timeout=1.0), body="result = 1", ranks=[1])
        assert f"rank 1 of 2 could not reach rank 0 at {world.addresses[0]}:{world.port} within 1 s" in rank.error


def test_the_store_listens_at_the_rendezvous_address_only() -> None:
    body = """
    import socket, skyward
    info = skyward.instance_info()
    with socket.create_connection((info.head_addr, info.head_port), timeout=5):
        pass
    try:
        socket.create_connection(("127.0.0.1", info.head_port), timeout=5).close()
        result = "open"
    except ConnectionRefusedError:
        result = "refused"
    """
    with World(2) as world:
        assert [rank.result for rank in world.run(torch(), body=body)] == ["refused", "refused"]


def test_one_worker_needs_nothing() -> None:
    rank = run_alone(torch(), body="import sys; result = 'torch' in sys.modules")
    assert (rank.code, rank.result) == (0, False)


def test_nccl_without_an_accelerator_is_refused() -> None:
    with World(2) as world:
        (rank,) = world.run(torch(collectives="nccl"), body="result = 1", ranks=[0], env={"CUDA_VISIBLE_DEVICES": ""})
        assert "sees no accelerator on node 0, and NCCL needs one" in rank.exception


@pytest.mark.parametrize(("worker", "visible", "index"), [(0, 8, 0), (7, 8, 7), (7, 1, 0)])
def test_each_worker_has_its_accelerator(worker: int, visible: int, index: int) -> None:
    info = InstanceInfo(accelerators=8, workers_per_node=8, worker=worker)
    assert device_index(info, visible) == index


def test_a_worker_without_an_accelerator_of_its_own_is_refused() -> None:
    info = InstanceInfo(accelerators=4, workers_per_node=8, worker=4)
    with pytest.raises(RuntimeError, match="worker 4 of node 0 has no accelerator of its own: 8 workers see 4"):
        device_index(info, 4)
