"""A call finds the same in frameworks wherever it runs, and leaves nothing to the task that waits for it."""

from __future__ import annotations

import pytest

from .conftest import Node
from .pool import Pool

pytestmark = pytest.mark.frameworks

PAYLOAD = """
    import os

    os.environ["KERAS_BACKEND"] = "jax"

    import skyward as sky

    def build(deeper=0):
        import keras
        names = [keras.layers.Dense(2).name]
        if deeper:
            names.append(sky.submit(build, deeper - 1).result())
        return [*names, keras.layers.Dense(2).name]

    def clear():
        import keras
        keras.utils.clear_session()
        return [*build(), keras.distribution.distribution()]

    def divide():
        import keras
        keras.distribution.set_distribution(keras.distribution.DataParallel())

    def fail():
        build()
        raise ValueError

    def main(first):
        # Keras is loaded by the call if the task has not built anything yet.
        names = build() if first else []
        if first:
            divide()
        names += [sky.submit(build, 1).result(), sky.submit(clear).result()]
        names.append(type(sky.submit(fail).exception()).__name__)
        sky.submit(divide if not first else clear).result()
        import keras
        return [*names, *build(), type(keras.distribution.distribution()).__name__]
"""
CALLS = [["dense", ["dense", "dense_1"], "dense_1"], ["dense", "dense_1", None], "ValueError"]
"""The names on another worker, which begins anew."""


def test_names_of_layers_and_distributions_do_not_depend_on_who_runs_a_call(node: Node) -> None:
    pool = Pool(node, 1, PAYLOAD)
    assert pool.call(first=False) == [*CALLS, "dense", "dense_1", "NoneType"]
    assert pool.call(first=True) == ["dense", "dense_1", *CALLS, "dense_2", "dense_3", "DataParallel"]
    assert pool.counts["help"] > 0
