"""Worlds that are joined while another user of the host tries to get their port."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .ranks import CORE, JAX, Plugin, World, accelerate, require, torch

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")

_SUM = """
import torch
import torch.distributed as dist
def total():
    value = torch.ones(1)
    dist.all_reduce(value)
    return value.item()
"""
_AGAIN = (
    _SUM
    + """
import os
# A rank that is ahead of rank 0 would join the group that rank 0 is leaving.
between = dist.FileStore(os.environ["BETWEEN"])
def leave(turn):
    dist.destroy_process_group()
    between.add(turn, 1)
    while between.add(turn, 0) < 2:
        pass
def again():
    found = []
    if dist.is_initialized():
        leave("first")
    for turn in "ab":
        dist.init_process_group("gloo")
        found.append(total())
        leave(turn)
    return found
result = task(again, gang=True)
"""
)


class Attack:
    """Another user, who tries to get a port while this context manager is entered."""

    def __init__(self, world: World) -> None:
        script = str(CORE / "tests" / "other_user.py")
        command = [sys.executable, script, world.addresses[0], str(world.port)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.came_of_it: Any = None
        """What could be bound, and how many connections came."""

    def __enter__(self) -> Attack:
        begun: Any = self._process.stdout
        assert begun.read(1) == b"+"
        return self

    def __exit__(self, *why: object) -> None:
        printed, _ = self._process.communicate(timeout=60)
        self.came_of_it = json.loads(printed)


@needs_root
@pytest.mark.parametrize(
    ("plugin", "packages", "body", "result"),
    [
        (JAX, ["jax"], "import jax\nresult = jax.device_count()", 2),
        (torch(), ["torch"], _SUM + "result = total()", 2),
        # The payload makes the group again, at the address that the variables name.
        (torch(), ["torch"], _AGAIN, [2, 2]),
        (accelerate(), ["torch", "accelerate"], _AGAIN, [2, 2]),
        (
            accelerate(),
            ["torch", "accelerate"],
            _SUM + "from accelerate import PartialState\nPartialState(cpu=True)\nresult = total()",
            2,
        ),
    ],
    ids=["jax", "torch", "torch again", "init_process_group", "accelerate"],
)
def test_no_other_user_gets_the_port_of_a_world(
    plugin: Plugin, packages: list[str], body: str, result: Any, tmp_path: Path
) -> None:
    require(*packages)
    with World(2) as world:
        with Attack(world) as attack:
            ranks = world.run(plugin, body=body, env={"BETWEEN": str(tmp_path / "between")})
        assert [rank.result for rank in ranks] == [result, result]
        assert attack.came_of_it == [[], 0]


@pytest.mark.parametrize("libuv", ["0", "1"])
def test_a_group_of_init_process_group_listens_on_the_address_of_its_node_alone(libuv: str) -> None:
    require("torch")
    body = """
    import os, torch.distributed as dist
    os.environ["USE_LIBUV"] = LIBUV
    dist.init_process_group("gloo")
    dist.barrier()
    with open("/proc/net/tcp") as four, open("/proc/net/tcp6") as six:
        lines = [line.split() for line in (*four, *six)]
    port = f"{int(os.environ['MASTER_PORT']):04X}"
    result = [line[1].split(":")[0] for line in lines if line[1].endswith(":" + port) and line[3] == "0A"]
    dist.barrier()
    dist.destroy_process_group()
    """.replace("LIBUV", repr(libuv))
    with World(2) as world:
        head = world.run(accelerate(), body=body)[0]
        address = "".join(f"{int(part):02X}" for part in reversed(world.addresses[0].split(".")))
        assert head.result == [address]
