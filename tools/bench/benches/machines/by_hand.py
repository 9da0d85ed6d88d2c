"""Start agents and workers by hand, all at once: `python by_hand.py COUNT`.

Run it with the interpreter of a pool's environment. It prints `ready` when each worker has answered
a call that does nothing.
"""

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "skyward-core/python"))

from tests.client import AgentClient, WorkerClient, start_agent, start_spec


def start(folder: Path) -> AgentClient:
    """Start an agent and a worker, which answers one call."""
    start_agent(folder)
    agent = AgentClient(folder)
    [[_, _, path]] = agent.start(start_spec())
    worker = WorkerClient(path)
    worker.hello()
    worker.load(1, "def main():\n    pass\n")
    worker.call(1)
    worker.close()
    return agent


def main() -> None:
    """Start the agents, print `ready`, and end them."""
    count = int(sys.argv[1])
    with ExitStack() as stack:
        folders = [Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(count)]
        threads = stack.enter_context(ThreadPoolExecutor(count))
        agents = list(threads.map(start, folders))
        print("ready", flush=True)
        list(threads.map(AgentClient.shutdown, agents))


if __name__ == "__main__":
    main()
