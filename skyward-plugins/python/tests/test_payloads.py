"""The payloads of the examples, run inside the hooks of their plugins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .ranks import JAX, Plugin, World, accelerate, keras, require, torch

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "payloads"
PAGES = ROOT / "docs" / "payloads"


def call(payload: Path, function: str, arguments: str) -> str:
    """A body that runs a function of a payload as a task."""
    return f"""
exec(compile({payload.read_text()!r}, {payload.name!r}, "exec"), globals())
result = task(lambda: {function}({arguments}))
"""


def reports(nodes: int, *plugins: Plugin, body: str, env: dict[str, str] | None = None, **cluster: Any) -> list[Any]:
    """Return what the body leaves in `result` on each node."""
    with World(nodes, **cluster) as world:
        ranks = world.run(*plugins, body=body, env=env)
        assert [rank.code for rank in ranks] == [0] * nodes, [rank.error for rank in ranks]
        return [rank.result for rank in ranks]


def test_keras_digits_trains_one_model_on_all_nodes() -> None:
    require("jax", "keras", "sklearn")
    nodes = 2
    found = reports(nodes, JAX, keras(), body=call(EXAMPLES / "keras_digits.py", "train", "5, 64"))
    assert [report["node"] for report in found] == list(range(nodes))
    assert [report["samples"] for report in found] == [1408 // nodes] * nodes
    assert {tuple(report["loss"]) for report in found} == {tuple(found[0]["loss"])}
    assert {report["weights_digest"] for report in found} == {found[0]["weights_digest"]}
    assert len(found[0]["loss"]) == 5
    assert found[0]["loss"] == sorted(found[0]["loss"], reverse=True)
    assert {report["test_accuracy"] for report in found} == {found[0]["test_accuracy"]}
    assert found[0]["test_accuracy"] >= 0.93


def test_torch_ddp_ends_with_equal_weights() -> None:
    require("torch", "sklearn")
    nodes = 2
    found = reports(nodes, torch(), body=call(EXAMPLES / "torch_ddp.py", "train", "5, 64"))
    assert [(report["rank"], report["samples"]) for report in found] == [(rank, 1408 // nodes) for rank in range(nodes)]
    assert {report["weights_digest"] for report in found} == {found[0]["weights_digest"]}
    assert found[0]["test_accuracy"] >= 0.93


def test_trainer_two_nodes_computes_on_two_ranks_what_it_computes_on_one() -> None:
    require("transformers", "accelerate", "torch", "sklearn")
    body = call(EXAMPLES / "trainer_two_nodes.py", "train", "4, 32")
    alone = "result = [result, task(lambda: train(4, 64), gang=False) if result['rank'] == 1 else None]"
    found = reports(2, accelerate(), body=body + alone, env={"OMP_NUM_THREADS": "1"})
    (first, _), (second, single) = found
    assert {**first, "rank": 1} == second
    assert (first["rank"], first["ranks"], first["steps"]) == (0, 2, 88)
    assert first["loss"] == sorted(first["loss"], reverse=True)
    assert first["test_accuracy"] >= 0.8
    assert [single[name] for name in ("rank", "ranks", "steps")] == [0, 1, 88]
    assert abs(single["loss"][0] / first["loss"][0] - 1) < 0.01


def test_shard_and_broadcast_covers_everything_once() -> None:
    for arguments in ("list(range(10))", "list(range(10)), shuffle=True, seed=3"):
        found = reports(3, body=call(EXAMPLES / "shard_and_broadcast.py", "part", arguments))
        numbers = [number for report in found for number in report["numbers"]]
        assert sorted(numbers) == list(range(10))
        assert (numbers == list(range(10))) == ("shuffle" not in arguments)
        assert [report["sum"] for report in found] == [sum(report["numbers"]) for report in found]


def test_hello_says_where_it_ran() -> None:
    assert reports(2, body=call(EXAMPLES / "hello.py", "hello", "'you'")) == [
        "hello you, from node 0 of 2",
        "hello you, from node 1 of 2",
    ]
