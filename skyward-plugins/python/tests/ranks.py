"""Runs a hook in as many processes as a pool has workers, each with a loopback address of its own."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import textwrap
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from skyward._agent.port import reserve

ROOT = Path(__file__).parents[1]
CORE = ROOT.parents[1] / "skyward-core" / "python"

Plugin = tuple[str, dict[str, Any]]
"""The name of a hook's module, and the configuration of its factories."""

DEADLINE = 180.0
"""Seconds after which a world's processes are killed, and the test fails."""

JAX: Plugin = ("jax", {"timeout": 60.0})


def keras(**config: Any) -> Plugin:
    """The keras hook with this configuration."""
    return "keras", {"backend": "jax", "seed": None, "distribution": {"kind": "auto"}, **config}


def torch(**config: Any) -> Plugin:
    """The torch hook with this configuration."""
    return "torch", {"collectives": "auto", "timeout": 60.0, "collective_timeout": None, **config}


def accelerate(**config: Any) -> Plugin:
    """The hook of the plugins accelerate and transformers with this configuration."""
    return "accelerate", {"timeout": 60.0, "cuda": False, "fsdp": {}, "checkpoints": None, **config}


_RUN = """
import atexit, json, os, sys, traceback
from contextlib import ExitStack
from importlib import import_module

# As a worker does it: before the hooks change anything.
from skyward._libraries import head_port, layouts, world as _world
from skyward._core import state

head_port.share(json.loads(os.environ["SKYWARD_CLUSTER"]))

spec = json.loads(sys.argv[1])
hooks = [import_module("skyward_plugins." + name) for name, _ in spec["plugins"]]

gangs = [0]

def task(function, gang=None):
    '\''One task, with the hooks around it.'\''
    if gang is not None:
        state.gang = gang
    state.ranks = None if state.gang else 1
    # Of a gang the number is the same on all ranks, and a task alone has none.
    gangs[0] += state.gang
    state.attempt = (gangs[0], 1) if state.gang else None
    _world.show(state.gang)
    with ExitStack() as around:
        for module, (_, config) in zip(hooks, spec["plugins"]):
            if hasattr(module, "around_task"):
                around.enter_context(module.around_task(config))
        value = function()
    layouts.take_warnings()
    return value

code = 0
try:
    with ExitStack() as app:
        for module, (_, config) in zip(hooks, spec["plugins"]):
            app.enter_context(module.around_app(config))
        names = {"task": task}
        exec(compile(spec["body"], "body.py", "exec"), names)
        print("\\nRESULT " + json.dumps(names["result"]), flush=True)
        _world.leave()
    exec(compile(spec["after"], "after.py", "exec"), {})
except BaseException:
    traceback.print_exc()
    code = 1
# As a worker ends.
atexit._run_exitfuncs()
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)
"""


def require(*modules: str) -> None:
    """Fail if one of these modules is not installed; import none of them."""
    missing = [module for module in modules if find_spec(module) is None]
    assert not missing, f"not installed: {missing}; `cargo xtask test --only python-test` installs them"


@dataclass
class Rank:
    """The end of one rank: its exit code and its output."""

    code: int
    output: str
    error: str

    @property
    def result(self) -> Any:
        """What the body has left in `result`."""
        lines = [line for line in self.output.splitlines() if line.startswith("RESULT ")]
        assert lines, f"no result, exit code {self.code}:\n{self.output}\n{self.error}"
        return json.loads(lines[-1].removeprefix("RESULT "))

    @property
    def exception(self) -> str:
        """The last line of the traceback."""
        return self.error.strip().splitlines()[-1]


class World:
    """Nodes on 127.x.y.1, 127.x.y.2, … with a reserved rendezvous port on the first."""

    def __init__(self, nodes: int, workers_per_node: int = 1, **cluster: Any) -> None:
        self.nodes, self.workers_per_node, self.cluster = nodes, workers_per_node, cluster
        subnet = f"127.{random.randint(1, 254)}.{random.randint(1, 254)}"
        self.addresses = [f"{subnet}.{node + 1}" for node in range(nodes)]
        self.held = reserve(self.addresses[0])
        self.port: int = self.held.getsockname()[1]

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.held.close()

    def info(self, rank: int) -> dict[str, Any]:
        """Return the `cluster` map of this rank."""
        node, worker = divmod(rank, self.workers_per_node)
        return {
            "node": node,
            "worker": worker,
            "total_nodes": self.nodes,
            "workers_per_node": self.workers_per_node,
            "head_addr": self.addresses[0],
            "head_port": self.port,
            "job_id": "pool-test",
            "addr": self.addresses[node],
            "peers": [{"node": at, "addr": addr} for at, addr in enumerate(self.addresses)],
            "generation": 1,
            **self.cluster,
        }

    def run(
        self,
        *plugins: Plugin,
        body: str,
        after: str = "",
        ranks: list[int] | None = None,
        env: dict[str, str] | None = None,
        prepare: str = "",
    ) -> list[Rank]:
        """Run the hooks, `body` inside them, and `after` outside them, on these or all ranks."""
        spec = {"plugins": plugins, "body": textwrap.dedent(body), "after": textwrap.dedent(after)}
        command = [sys.executable, "-c", textwrap.dedent(prepare) + _RUN, json.dumps(spec)]
        chosen = range(self.nodes * self.workers_per_node) if ranks is None else ranks
        processes = []
        with ExitStack() as stack:
            for rank in chosen:
                process = subprocess.Popen(
                    command,
                    env={
                        **os.environ,
                        "PYTHONPATH": f"{ROOT}:{CORE}",
                        "SKYWARD_CLUSTER": json.dumps(self.info(rank)),
                        **(env or {}),
                    },
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
                stack.callback(process.kill)
                processes.append(process)
            ended = [(process, process.communicate(timeout=DEADLINE)) for process in processes]
        return [Rank(process.returncode, output, error) for process, (output, error) in ended]


def run_alone(*plugins: Plugin, body: str, **more: Any) -> Rank:
    """Run a single rank in a world of one."""
    with World(1) as world:
        return world.run(*plugins, body=body, **more)[0]
