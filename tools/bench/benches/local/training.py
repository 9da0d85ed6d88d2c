"""A training in NumPy that reports its duration.

It is the payload of `benches/local`. By hand, it trains once per line of standard input.
"""

import sys
import time

import numpy as np
from numpy.typing import NDArray


def train(steps: int) -> float:
    """Train a small perceptron, and return the seconds that the steps took."""
    generator = np.random.default_rng(0)
    x: NDArray[np.float32] = generator.standard_normal((256, 64), dtype=np.float32)
    labels = generator.integers(0, 10, 256)
    first = generator.standard_normal((64, 128), dtype=np.float32) * 0.1
    second = generator.standard_normal((128, 10), dtype=np.float32) * 0.1
    rows = np.arange(256)
    began = time.perf_counter()
    for step in range(steps):
        hidden = np.maximum(x @ first, 0)
        scores = hidden @ second
        exponents = np.exp(scores - scores.max(axis=1, keepdims=True))
        slope = exponents / exponents.sum(axis=1, keepdims=True)
        loss = -float(np.log(slope[rows, labels]).mean())
        slope[rows, labels] -= 1
        slope /= 256
        back = (slope @ second.T) * (hidden > 0)
        second -= 0.1 * (hidden.T @ slope)
        first -= 0.1 * (x.T @ back)
        if step % 100 == 0:
            print(f"step {step}: loss {loss:.4f}", flush=True)
    return time.perf_counter() - began


if __name__ == "__main__":
    for line in sys.stdin:
        print("took", train(int(line)), flush=True)
