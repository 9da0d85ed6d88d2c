"""Writes `tests/golden/frames.json`, the frames on which this side and the Rust side must agree.

Run `python -m tests.golden` after a change of the protocol, and read the difference.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from skyward._core import wire
from skyward._values import codec

from .client import source

PATH = Path(__file__).resolve().parents[3] / "tests" / "golden" / "frames.json"
_SOURCE = source("""
    def main(x):
        return x
""")
_LOAD = {"entry": "main", "main": "job.py", "first_line": 3, "files": [["job.py", _SOURCE]]}
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
        "generation": 1,
        "joined": True,
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
    "max_frame_bytes": 1 << 30,
    "retain_bytes": 1 << 28,
    "store_bytes": 1 << 34,
}
_TRACE = ["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "vendor=1"]
_CALL = b"\x80\x05a call"
_DIGEST = "0123456789abcdef" * 4
"""Placeholders for a pickled call and for an answer: only workers decode them."""
_ANSWER = b"\x00\x80\x05K\x01."
_OPTIONS = {"crash": 0, "out_of_memory": 1, "node_lost": 2, "preempted": 5, "timeout": 2.5}
_LOST = {"kind": "lost", "message": "its worker has crashed"}
_FACTS = {"cpus": 2, "memory_bytes": 25_000_000_000, "hostname": "node0"}

_ARTIFACT = "0123456789abcdef" * 2
_ENTRIES = [
    (b"", "folder", 70_000, 4096, -1, False, b""),
    (b"caf\xe9", "file", (1 << 64) - 1, 1 << 40, 1_700_000_000_123_456_789, True, b""),
    (b"link", "link", 70_002, 3, 0, False, b"caf\xe9"),
]
"""What is below a folder, with names that are no text."""
_MANIFEST = [
    (b"", "folder", 0, "", False, b""),
    (b"caf\xe9", "file", 1 << 40, _DIGEST, True, b""),
    (b"link", "link", 0, "", False, b"caf\xe9"),
]
"""What a commit has, with names that are no text."""
_RESTORED = f"/tmp/n/checkpoints/restored/{_ARTIFACT}".encode()
_DATA = f"/caf\udce9/skyward/data/{_DIGEST}/files".encode(errors="surrogateescape")
_RECORD = {
    "name": "run-42",
    "try": "1.7.0",
    "step": 100,
    "rank": 1,
    "ranks": 2,
    "writers": "all",
    "meta": '{"loss": 0.5}',
}
_INSTALLED = {"msgspec": "0.19.0", "numpy": "2.1.3", "python": "3.12"}


def _packed(value: Any) -> bytes:
    return msgspec.msgpack.encode(value)


def shown(head: list[Any]) -> list[Any]:
    """Return a head as JSON has it: bytes, which JSON does not have, become a map of their hexadecimal digits."""
    return [{"hex": item.hex()} if isinstance(item, bytes) else item for item in head]


def frames() -> list[dict[str, Any]]:
    """Return a frame of each kind, and bodies with every form of value."""
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
        ("hello", "client_to_agent", [wire.HELLO, 3, "pool", 1 << 30], b""),
        ("start", "client_to_agent", [wire.START, 5, 1, [0, 1]], _packed(_SPEC)),
        ("reserve_port", "client_to_agent", [wire.RESERVE_PORT, 7], b""),
        ("signal", "client_to_agent", [wire.SIGNAL, 1, 0, "interrupt"], b""),
        ("stop", "client_to_agent", [wire.STOP, 6, 1, [0, 1], 2.5], b""),
        ("ping", "client_to_agent", [wire.PING, 300, 60.0], b""),
        ("logs", "client_to_agent", [wire.LOGS, 1, 0, 0, 70_000], b""),
        ("shutdown", "client_to_agent", [wire.SHUTDOWN, 8, 2.0], b""),
        ("recall", "client_to_agent", [wire.RECALL, 1, 0, 4243, 70_000], b""),
        ("watch", "client_to_agent", [wire.WATCH, ["/usr/bin/poll", "--every", "5"]], b""),
        ("mover", "client_to_agent", [wire.MOVER, 9], b""),
        ("hello", "agent_to_client", [wire.AGENT_HELLO, 3, 4242, "3.12.1", _FACTS], _packed(_INSTALLED)),
        ("started", "agent_to_client", [wire.STARTED, 5, 1, [[0, 4243, "/tmp/n/g1w0.sock"]]], b""),
        ("port", "agent_to_client", [wire.PORT, 7, "127.0.3.1", 41234], b""),
        ("exited_code", "agent_to_client", [wire.EXITED, 1, 0, 4243, 7, None, False, 300], b""),
        ("exited_signal", "agent_to_client", [wire.EXITED, 1, 0, 4243, None, 9, True, 0], b"loading\n"),
        ("pong", "agent_to_client", [wire.PONG, 300], b""),
        ("log", "agent_to_client", [wire.LOG, 1, 0, 1, 70_000], b"caf\xe9\xff\n"),
        ("log_end", "agent_to_client", [wire.LOG_END, 1, 0, 70_006, 0], b""),
        ("stopped", "agent_to_client", [wire.STOPPED, 6, 1, [0, 1]], b""),
        ("error", "agent_to_client", [wire.ERROR, 2, "generation 1 still runs", 5], b""),
        ("bye", "agent_to_client", [wire.AGENT_BYE, 8], b""),
        ("progress", "agent_to_client", [wire.PROGRESS, 1, 0], b""),
        ("stacks", "agent_to_client", [wire.STACKS, 1, 0], b"Thread 0x1 (most recent call first):\n"),
        ("recalled", "agent_to_client", [wire.RECALLED, 1, 0, 4243, 70_000, 300], b""),
        ("calls", "agent_to_client", [wire.CALLS, 1, 0, 4243, "/tmp/n/g1w0.calls"], b""),
        ("notice", "agent_to_client", [wire.AGENT_NOTICE, "preempted", 120.0, "the market wants it back"], b""),
        ("mover", "agent_to_client", [wire.AGENT_MOVER, 9, 4244, "/tmp/n/mover.sock"], b""),
        ("hello_first", "client_to_worker", [wire.ATTACH, 3, 1, 0, []], b""),
        ("hello_again", "client_to_worker", [wire.ATTACH, 3, 1, 41, [[7, 0, 16], [8, 3, 300]]], b""),
        ("load", "client_to_worker", [wire.LOAD, 1, "0123456789abcdef"], _packed(_LOAD)),
        ("run", "client_to_worker", [wire.RUN, 1 << 40, 1, 41, 0, None], _packed({"x": 1})),
        ("run_stream", "client_to_worker", [wire.RUN, 9, 1, 41, 16, _TRACE], b"\x80"),
        ("run_gang", "client_to_worker", [wire.RUN, 10, 1, 41, 0, None, [70_000, 2, 4]], b"\x80"),
        ("run_call", "client_to_worker", [wire.RUN, 11, 1, 41, 0, None, None, 2], _CALL),
        ("ack", "client_to_worker", [wire.ACK, 42], b""),
        ("credit", "client_to_worker", [wire.CREDIT, 9, 300, 70_000], b""),
        ("cancel", "client_to_worker", [wire.CANCEL, 9], b""),
        ("bye", "client_to_worker", [wire.BYE], b""),
        ("notice", "client_to_worker", [wire.NOTICE, "budget", 90.5, ""], b""),
        ("size", "client_to_worker", [wire.SIZE, 70_000], b""),
        ("hello_ready", "worker_to_client", [wire.WORKER_HELLO, 3, 4243, 1, 0, True, "3.12.1", 300], b""),
        (
            "hello_failed",
            "worker_to_client",
            [wire.WORKER_HELLO, 3, 4243, 1, 0, False, "3.12.1", 0],
            _packed({**_FAILURE, "kind": "hook", "plugin": "jax", "phase": "enter"}),
        ),
        ("failure", "worker_to_client", [wire.FAILURE, 42, 9, 100, 0, 250], _packed(_FAILURE)),
        ("item", "worker_to_client", [wire.ITEM, 9, 0], _packed(1)),
        ("report", "worker_to_client", [wire.REPORT, 44, 9], _packed({"loss": 0.5})),
        ("import_begins", "worker_to_client", [wire.IMPORT, 9, True], b""),
        ("import_ended", "worker_to_client", [wire.IMPORT, 9, False], b""),
        ("result_call", "worker_to_client", [wire.RESULT, 43, 11, 100, 0, 250], _ANSWER),
        ("hello", "client_to_calls", [wire.CALLS_ATTACH, 3, 1, 70_000], b""),
        ("outcome_ok", "client_to_calls", [wire.OUTCOME, 1, 7, True, 250], _ANSWER),
        ("outcome_failed", "client_to_calls", [wire.OUTCOME, 2, 8, False, 0], _packed(_LOST)),
        ("help", "client_to_calls", [wire.HELP, 3, 5, 1 << 40, 4, 2, False], _CALL),
        ("help_aside", "client_to_calls", [wire.HELP, 4, 6, 1 << 40, 0, 64, True], _CALL),
        ("cancel_help", "client_to_calls", [wire.CANCEL_HELP, 5, 6], b""),
        ("read", "client_to_calls", [wire.READ, 6, 3, _DIGEST, 1 << 40, 2 << 20], b""),
        ("fetched", "client_to_calls", [wire.FETCHED, 7, 4], b"a part"),
        ("not_fetched", "client_to_calls", [wire.NOT_FETCHED, 8, 4], b""),
        ("ack", "client_to_calls", [wire.CALLS_ACK, 300], b""),
        ("hello", "calls_to_client", [wire.CALLS_HELLO, 3, 4243, 1, 0, 300], b""),
        ("submit", "calls_to_client", [wire.SUBMIT, 1, 7, 1 << 40, 0, None], _CALL),
        ("submit_options", "calls_to_client", [wire.SUBMIT, 2, 8, 1 << 40, 5, _OPTIONS], _CALL),
        ("wait", "calls_to_client", [wire.WAIT, 3, 1 << 40, 0], b""),
        ("waited", "calls_to_client", [wire.WAITED, 4], b""),
        ("helped", "calls_to_client", [wire.HELPED, 5, 5, 250], _ANSWER),
        ("help_failed", "calls_to_client", [wire.HELP_FAILED, 6, 6, 250], _packed(_FAILURE)),
        ("refuse", "calls_to_client", [wire.REFUSE, 7, 9], b""),
        ("drop", "calls_to_client", [wire.DROP, 8, 8], b""),
        ("fetch", "calls_to_client", [wire.FETCH, 9, 4, 3, _DIGEST, 1 << 40, 2 << 20], b""),
        ("piece", "calls_to_client", [wire.PIECE, 10, 3], b"a part"),
        ("missing", "calls_to_client", [wire.MISSING, 11, 3], b""),
        ("ack", "calls_to_client", [wire.WORKER_CALLS_ACK, 70_000], b""),
        ("hello", "client_to_mover", [wire.MOVER_ATTACH, 3, "pool"], b""),
        ("stat", "client_to_mover", [wire.STAT, 1, "", b"/data/caf\xe9"], b""),
        ("stat_artifact", "client_to_mover", [wire.STAT, 2, _ARTIFACT, b"content"], b""),
        ("read", "client_to_mover", [wire.MOVER_READ, 3, "", b"runs/model.pt", None, 0, 2 << 20], b""),
        (
            "read_same",
            "client_to_mover",
            [wire.MOVER_READ, 4, _ARTIFACT, b"content/a", [(1 << 64) - 1, 1 << 40, -1], 1 << 33, 300],
            b"",
        ),
        ("drop", "client_to_mover", [wire.MOVER_DROP, 5, _ARTIFACT], b""),
        ("attend", "client_to_mover", [wire.ATTEND, 6], b""),
        ("deliver", "client_to_mover", [wire.DELIVER, 7, 3, 70_000], _packed({"n": 1, "step": None})),
        ("deliver_nothing", "client_to_mover", [wire.DELIVER, 8, 3, 0], b""),
        ("ask", "client_to_mover", [wire.ASK, 9, 3, 70_000], b""),
        ("settle", "client_to_mover", [wire.SETTLE, 10, _ARTIFACT], b""),
        ("restore", "client_to_mover", [wire.RESTORE, 11, _ARTIFACT], _packed(_MANIFEST)),
        ("write", "client_to_mover", [wire.MOVER_WRITE, 12, _ARTIFACT, b"caf\xe9", 1 << 33], b"a part"),
        ("complete", "client_to_mover", [wire.COMPLETE, 13, _ARTIFACT], b""),
        ("data_attach", "client_to_mover", [wire.DATA_ATTACH, 14, 1 << 40], _packed(_MANIFEST)),
        ("data_attach_no_limit", "client_to_mover", [wire.DATA_ATTACH, 15, 0], _packed(_MANIFEST)),
        ("fill", "client_to_mover", [wire.FILL, 16, _DIGEST, [[1, 0, 3], [70_000, 1 << 33, 3]]], b"a part"),
        ("publish", "client_to_mover", [wire.PUBLISH, 17, _DIGEST], b""),
        ("hello", "mover_to_client", [wire.MOVER_HELLO, 3, 4244], b""),
        ("entries", "mover_to_client", [wire.ENTRIES, 1, False], _packed(_ENTRIES)),
        ("entries_more", "mover_to_client", [wire.ENTRIES, 2, True], _packed(_ENTRIES[:1])),
        (
            "piece",
            "mover_to_client",
            [wire.MOVER_PIECE, 3, (1 << 64) - 1, 1 << 40, 1_700_000_000_123_456_789],
            b"a part",
        ),
        ("piece_empty", "mover_to_client", [wire.MOVER_PIECE, 4, 70_000, 0, -1], b""),
        ("done", "mover_to_client", [wire.DONE, 5], b""),
        ("failed_missing", "mover_to_client", [wire.FAILED, 1, "missing", "/x: No such file or directory", 2], b""),
        (
            "failed_changed",
            "mover_to_client",
            [wire.FAILED, 4, "changed", "/x has changed since it was listed", 0],
            b"",
        ),
        ("failed_kind", "mover_to_client", [wire.FAILED, 1, "kind", "/x is a named pipe", 0], b""),
        (
            "failed_invalid",
            "mover_to_client",
            [wire.FAILED, 2, "invalid", "the path '../x' is not one below the folder of an artifact", 0],
            b"",
        ),
        ("failed_io", "mover_to_client", [wire.FAILED, 1, "io", "/x: Permission denied", 13], b""),
        ("error", "mover_to_client", [wire.ERROR, 193, "this side has version 3 of the worker protocol", 0], b""),
        ("sent", "mover_to_client", [wire.SENT, 3, 70_000], _packed({"kind": "wait", "n": 2, "step": 100})),
        ("closed", "mover_to_client", [wire.CLOSED, 3], b""),
        (
            "saved",
            "mover_to_client",
            [
                wire.SAVED,
                _ARTIFACT,
                f"/tmp/n\udce9/checkpoints/outbox/{_ARTIFACT}/content".encode(errors="surrogateescape"),
            ],
            _packed(_RECORD),
        ),
        ("step", "mover_to_client", [wire.STEP, 9, 1 << 40], b""),
        ("step_none", "mover_to_client", [wire.STEP, 9, -1], b""),
        ("restored", "mover_to_client", [wire.RESTORED, 11, _RESTORED, False], b""),
        ("busy", "mover_to_client", [wire.MOVER_BUSY, 11], b""),
        ("restored_complete", "mover_to_client", [wire.RESTORED, 13, _RESTORED, True], b""),
        ("attached", "mover_to_client", [wire.ATTACHED, 14, _DIGEST, _DATA, False], _packed([1, 70_000])),
        ("attached_complete", "mover_to_client", [wire.ATTACHED, 17, _DIGEST, _DATA, True], _packed([])),
        ("hello", "worker_to_mover", [wire.CHANNEL_ATTACH, 3, _ARTIFACT], b""),
        ("hello_no_steps", "worker_to_mover", [wire.CHANNEL_ATTACH, 3, ""], b""),
        ("send", "worker_to_mover", [wire.CHANNEL_SEND], _packed({"kind": "wait", "n": 2, "step": 100})),
        ("saved", "worker_to_mover", [wire.CHANNEL_SAVED, _ARTIFACT], b""),
        ("hello", "mover_to_worker", [wire.CHANNEL_HELLO, 3, 4244], b""),
        ("deliver", "mover_to_worker", [wire.CHANNEL_DELIVER], _packed({"n": 1, "step": None})),
    ]
    for name, value in values.items():
        body = b"".join(bytes(part) for part in codec.encode(value))
        table.append((f"result_{name}", "worker_to_client", [wire.RESULT, 42, 9, 100, 0, 250], body))
    for elements, name in arrays:
        body = _packed(msgspec.msgpack.Ext(1, elements))
        table.append((f"result_array_{name}", "worker_to_client", [wire.RESULT, 42, 9, 100, 0, 250], body))
    return [
        {
            "name": name,
            "direction": direction,
            "head": shown(head),
            "body_hex": body.hex(),
            "frame_hex": wire.frame(head, body).hex(),
        }
        for name, direction, head, body in table
    ]


def text() -> str:
    """Return the content of the file."""
    return "[\n" + ",\n".join(json.dumps(frame) for frame in frames()) + "\n]\n"


if __name__ == "__main__":
    PATH.parent.mkdir(parents=True, exist_ok=True)
    PATH.write_text(text())
