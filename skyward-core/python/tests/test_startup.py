"""Imports of the programs leave payloads a collector that works, and nothing of their own to look at."""

from __future__ import annotations

from .conftest import Node


def test_payloads_have_a_collector_that_ignores_what_the_worker_has_imported(node: Node) -> None:
    worker = node.ready("""
        import gc, weakref

        class Ring:
            def __init__(self):
                self.ring = self

        def main():
            gone = []
            weakref.finalize(Ring(), gone.append, True)
            gc.collect()
            return [gc.isenabled(), gc.get_freeze_count() > 10_000, bool(gone)]
    """)
    assert worker.call(1) == [True, True, True]
