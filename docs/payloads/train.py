"""A training that is cheap on any machine: gradient descent on one number."""

from __future__ import annotations

from collections.abc import Iterator


def train(epochs: int, rate: float = 0.1) -> dict[str, float]:
    """Minimise `(x - 3) ** 2`.

    Args:
        epochs: how many steps are made.
        rate: how far a step goes.

    Returns:
        The minimum that was found, as `x`, and the loss there, as `loss`.
    """
    x = 0.0
    for _ in range(epochs):
        x -= rate * 2.0 * (x - 3.0)
    return {"x": x, "loss": (x - 3.0) ** 2}


def losses(epochs: int) -> Iterator[float]:
    """Yield the loss after each step."""
    for epoch in range(epochs):
        yield train(epoch + 1)["loss"]
