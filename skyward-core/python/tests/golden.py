"""Writes `tests/golden/frames.json`, the frames that this side and the Rust side must agree on.

Run `python -m tests.golden` after a change of the protocol, and read the difference.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from skyward import _values, _wire

PATH = Path(__file__).resolve().parents[3] / "tests" / "golden" / "frames.json"
_LOAD = {"entry": "main", "main": "job.py", "first_line": 3, "files": [["job.py", "def main(x):\n    return x\n"]]}
_FAILURE = {
    "kind": "exception",
    "type": "ValueError",
    "module": "builtins",
    "message": "no",
    "traceback": "Traceback (most recent call last):\nValueError: no\n",
}
_SPEC = {
    "python": "/usr/bin/python3",
    "launcher": [],
    "env": {"KERAS_BACKEND": "jax"},
    "secrets": {"HF_TOKEN": "hunter2"},
    "cwd": "/tmp",
    "cluster": {
        "node": 0,
        "total_nodes": 2,
        "workers_per_node": 1,
        "head_addr": "127.0.3.1",
        "head_port": 41234,
        "job_id": "pool",
        "addr": "127.0.3.1",
        "peers": [{"node": 0, "addr": "127.0.3.1"}, {"node": 1, "addr": "127.0.3.2"}],
        "accelerators": 0,
        "total_accelerators": 0,
        "accelerator": None,
        "network": {"interface": None},
        "generation": 1,
    },
    "hooks": [
        {
            "plugin": "jax",
            "kind": "app",
            "source": "def around_app(config): ...\n",
            "filename": "skyward_plugins/jax.py",
            "factory": "around_app",
            "config": {},
        }
    ],
    "max_frame": 1 << 30,
    "retain_bytes": 1 << 28,
}
_TRACE = ["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "vendor=1"]
_FACTS = {"cpus": 2, "memory_bytes": 25_000_000_000, "hostname": "node0"}


def _packed(value: Any) -> bytes:
    return msgspec.msgpack.encode(value)


def frames() -> list[dict[str, Any]]:
    """One frame of each kind, and bodies of every form that a value can take."""
    values: dict[str, Any] = {
        "nil": None,
        "scalars": [True, False, 0, -1, 127, 128, -33, 1 << 31, -(1 << 63), (1 << 64) - 1, 1.5, float("inf")],
        "text": ["", "é", "x" * 40, "y" * 300],
        "bytes": [b"", b"\x00\xff", b"z" * 300],
        "map": {"a": 1, "list": [1, [2]], "deep": {"b": None}},
    }
    arrays = [
        (b"\x92\xa7float32\x91\x03" + b"\x00\x00\x80?\x00\x00\x00@\x00\x00@@", "float32_3"),
        (
            b"\x92\xa5int64\x92\x02\x01" + (7).to_bytes(8, "little") + (-1).to_bytes(8, "little", signed=True),
            "int64_2x1",
        ),
        (b"\x92\xa4bool\x90\x01", "bool_scalar"),
        (b"\x92\xa8bfloat16\x91\x02\x80?\x00@", "bfloat16_2"),
        (b"\x92\xa5uint8\x91\xcd\x01\x2c" + bytes(300), "uint8_300"),
        (b"\x92\xa7float64\x92\x00\x05", "float64_empty"),
    ]
    table: list[tuple[str, str, list[Any], bytes]] = [
        ("hello", "client_to_agent", [_wire.HELLO, 2, "pool", 1 << 30], b""),
        ("start", "client_to_agent", [_wire.START, 5, 1, [0, 1]], _packed(_SPEC)),
        ("reserve_port", "client_to_agent", [_wire.RESERVE_PORT, 7], b""),
        ("signal", "client_to_agent", [_wire.SIGNAL, 1, 0, "interrupt"], b""),
        ("stop", "client_to_agent", [_wire.STOP, 6, 1, [0, 1], 2.5], b""),
        ("ping", "client_to_agent", [_wire.PING, 300, 60.0], b""),
        ("logs", "client_to_agent", [_wire.LOGS, 1, 0, 0, 70_000], b""),
        ("shutdown", "client_to_agent", [_wire.SHUTDOWN, 8, 2.0], b""),
        ("recall", "client_to_agent", [_wire.RECALL, 1, 0, 4243, 70_000], b""),
        ("hello", "agent_to_client", [_wire.AGENT_HELLO, 2, 4242, "3.12.1", _FACTS], b""),
        ("started", "agent_to_client", [_wire.STARTED, 5, 1, [[0, 4243, "/tmp/n/g1w0.sock"]]], b""),
        ("port", "agent_to_client", [_wire.PORT, 7, "127.0.3.1", 41234], b""),
        ("exited_code", "agent_to_client", [_wire.EXITED, 1, 0, 4243, 7, None, False, 300], b""),
        ("exited_signal", "agent_to_client", [_wire.EXITED, 1, 0, 4243, None, 9, True, 0], b""),
        ("pong", "agent_to_client", [_wire.PONG, 300], b""),
        ("log", "agent_to_client", [_wire.LOG, 1, 0, 1, 70_000], b"caf\xe9\xff\n"),
        ("log_end", "agent_to_client", [_wire.LOG_END, 1, 0, 70_006, 0], b""),
        ("stopped", "agent_to_client", [_wire.STOPPED, 6, 1, [0, 1]], b""),
        ("error", "agent_to_client", [_wire.ERROR, 2, "generation 1 still runs", 5], b""),
        ("bye", "agent_to_client", [_wire.AGENT_BYE, 8], b""),
        ("progress", "agent_to_client", [_wire.PROGRESS, 1, 0], b""),
        ("stacks", "agent_to_client", [_wire.STACKS, 1, 0], b"Thread 0x1 (most recent call first):\n"),
        ("recalled", "agent_to_client", [_wire.RECALLED, 1, 0, 4243, 70_000, 300], b""),
        ("hello_first", "client_to_worker", [_wire.ATTACH, 2, 1, 0, []], b""),
        ("hello_again", "client_to_worker", [_wire.ATTACH, 2, 1, 41, [[7, 0, 16], [8, 3, 300]]], b""),
        ("load", "client_to_worker", [_wire.LOAD, 1, "0123456789abcdef"], _packed(_LOAD)),
        ("run", "client_to_worker", [_wire.RUN, 1 << 40, 1, 41, 0, None], _packed({"x": 1})),
        ("run_stream", "client_to_worker", [_wire.RUN, 9, 1, 41, 16, _TRACE], b"\x80"),
        ("run_alone", "client_to_worker", [_wire.RUN, 10, 1, 41, 0, None, False], b"\x80"),
        ("ack", "client_to_worker", [_wire.ACK, 42], b""),
        ("credit", "client_to_worker", [_wire.CREDIT, 9, 300, 70_000], b""),
        ("cancel", "client_to_worker", [_wire.CANCEL, 9], b""),
        ("bye", "client_to_worker", [_wire.BYE], b""),
        ("hello_ready", "worker_to_client", [_wire.WORKER_HELLO, 2, 4243, 1, 0, True, "3.12.1", 300], b""),
        (
            "hello_failed",
            "worker_to_client",
            [_wire.WORKER_HELLO, 2, 4243, 1, 0, False, "3.12.1", 0],
            _packed({**_FAILURE, "kind": "hook", "plugin": "jax", "phase": "enter"}),
        ),
        ("failure", "worker_to_client", [_wire.FAILURE, 42, 9, 100, 0, 250], _packed(_FAILURE)),
        ("item", "worker_to_client", [_wire.ITEM, 9, 0], _packed(1)),
    ]
    for name, value in values.items():
        body = b"".join(bytes(part) for part in _values.encode(value))
        table.append((f"result_{name}", "worker_to_client", [_wire.RESULT, 42, 9, 100, 0, 250], body))
    for elements, name in arrays:
        body = _packed(msgspec.msgpack.Ext(1, elements))
        table.append((f"result_array_{name}", "worker_to_client", [_wire.RESULT, 42, 9, 100, 0, 250], body))
    return [
        {
            "name": name,
            "direction": direction,
            "head": head,
            "body_hex": body.hex(),
            "frame_hex": _wire.frame(head, body).hex(),
        }
        for name, direction, head, body in table
    ]


def text() -> str:
    """The file's content."""
    return "[\n" + ",\n".join(json.dumps(frame) for frame in frames()) + "\n]\n"


if __name__ == "__main__":
    PATH.parent.mkdir(parents=True, exist_ok=True)
    PATH.write_text(text())
