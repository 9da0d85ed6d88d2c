# /// script
# requires-python = ">=3.10"
# dependencies = ["numpy"]
# ///
"""Trains a linear model step by step, and goes on from its last checkpoint after each loss."""

import hashlib
import time
from typing import Any

import numpy as np
import skyward as sky


def train(steps: int, every: int, seconds: float) -> dict[str, Any]:
    """Train, with a checkpoint at each multiple of `every`.

    Args:
        steps: how many batches the model sees, those of earlier tries among them.
        every: the number of steps between two checkpoints.
        seconds: how long each step takes at least.

    Returns:
        A dict of the `loss` of the last step, and the SHA-256 `digest` of the final state.
    """
    random = np.random.default_rng(0)
    truth = random.normal(size=64)
    weights, momentum = np.zeros(64), np.zeros(64)
    loss = float("nan")
    with sky.checkpoints("spot") as ckpt:
        start = ckpt.latest()
        if start is not None:
            state = np.load(start.path / "state.npz")
            weights, momentum = state["weights"], state["momentum"]
            # The next batches are those that an undisturbed training would see.
            random.bit_generator.state = start.meta["random"]
        for step in range(start.step + 1 if start else 1, steps + 1):
            x = random.normal(size=(32, 64))
            error = x @ weights - x @ truth
            loss = float(np.mean(error**2))
            momentum = 0.9 * momentum + x.T @ error / len(x)
            weights = weights - 0.01 * momentum
            sky.report({"step": step})
            time.sleep(seconds)
            if ckpt.due(step, every=every):
                with ckpt.save(step, meta={"random": random.bit_generator.state}) as folder:
                    np.savez(folder / "state.npz", weights=weights, momentum=momentum)
    digest = hashlib.sha256(weights.tobytes() + momentum.tobytes()).hexdigest()
    return {"loss": loss, "digest": digest}
