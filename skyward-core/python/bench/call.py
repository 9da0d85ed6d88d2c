"""Measure a worker with a plain synchronous client: `python bench/call.py`.

It prints the round trip of a call that does nothing, the rate of calls without waiting, the
throughput of 64 MiB in both directions, and the time from the start of an agent to the first
result.
"""

from __future__ import annotations

import os
import socket
import statistics
import sys
import tempfile
import threading
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from skyward._core import wire
from tests.client import AgentClient, WorkerClient, start_agent, start_spec


def cpu(pid: int) -> float:
    """Return the seconds of processor time that a process has used."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def round_trip(worker: WorkerClient, calls: int = 20_000) -> list[float]:
    """Return the microseconds of each call, sorted."""
    times = []
    send, receive = worker.socket.send, worker.socket.recv
    worker.socket.settimeout(None)
    for number in range(worker.task + 1, worker.task + 1 + calls):
        run = wire.frame([wire.RUN, number, 1, 0, 0, None], b"\x80")
        began = perf_counter()
        send(run)
        receive(4096)
        times.append((perf_counter() - began) * 1e6)
    worker.task += calls
    worker.send([wire.ACK, 1 << 40])
    return sorted(times)


def pipelined(worker: WorkerClient, calls: int = 300_000) -> float:
    """Return the calls per second."""
    numbers = range(worker.task + 1, worker.task + 1 + calls)
    frames = [wire.frame([wire.RUN, number, 1, 1 << 40, 0, None], b"\x80") for number in numbers]
    worker.task += calls
    answers = 0
    began = perf_counter()

    def feed() -> None:
        for first in range(0, calls, 1000):
            worker.socket.sendall(b"".join(frames[first : first + 1000]))

    feeder = threading.Thread(target=feed)
    feeder.start()
    buffer = bytearray(1 << 20)
    while answers < calls:
        # Count the beginnings of result heads: parsing frames would measure this client, not the
        # worker.
        answers += buffer.count(b"\x96b", 0, worker.socket.recv_into(buffer))
    took = perf_counter() - began
    feeder.join()
    return calls / took


def bulk(worker: WorkerClient, size: int = 64 << 20) -> float:
    """Return the GiB per second, counted in both directions."""
    body = b"\x81\xa1x\xc6" + size.to_bytes(4, "big") + bytes(size)
    best = 0.0
    for _ in range(6):
        worker.task += 1
        start = wire.prefix([wire.RUN, worker.task, 2, 1 << 40, 0, None], len(body))
        began = perf_counter()
        worker.socket.sendall(start)
        worker.socket.sendall(body)
        worker.receive()
        best = max(best, 2 * size / (perf_counter() - began) / (1 << 30))
    return best


def main() -> None:
    """Run all measurements."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        began = perf_counter()
        start_agent(folder)
        agent = AgentClient(folder)
        listening = perf_counter() - began
        [[_, pid, path]] = agent.start(start_spec())
        worker = WorkerClient(path)
        worker.hello()
        worker.load(1, "def main():\n    pass\n")
        worker.load(2, "def main(x):\n    return x\n")
        worker.start(1)
        worker.receive()
        first = perf_counter() - began
        times = round_trip(worker)
        print(f"start to first result   {first * 1e3:8.1f} ms (agent {listening * 1e3:.1f} ms)")
        p50, p99 = statistics.median(times), times[int(len(times) * 0.99)]
        print(f"round trip              {p50:8.1f} us p50, {p99:.1f} us p99")
        before = cpu(pid)
        rate = pipelined(worker)
        print(
            f"pipelined               {rate:8.0f} calls/s, {(cpu(pid) - before) / 0.3:.1f} us of the worker's time each"
        )
        worker.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        print(f"64 MiB there and back   {bulk(worker):8.2f} GiB/s")
        agent.shutdown()


if __name__ == "__main__":
    main()
