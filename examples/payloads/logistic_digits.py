# /// script
# requires-python = ">=3.10"
# dependencies = ["numpy", "scikit-learn"]
# ///
"""Trains a softmax regression on scikit-learn's handwritten digits, and yields each epoch's result.

The images are part of scikit-learn, so nothing is downloaded.
"""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

# Of 1797 images.
TRAINED_ON = 1408
CLASSES = 10


def train(epochs: int, batch_size: int, learning_rate: float, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Train; yield a dict per epoch, and at the end a dict about the whole training.

    Args:
        epochs: passes over the data.
        batch_size: images per step.
        learning_rate: the step size of plain gradient descent.
        seed: selects the training images and their order.

    Yields:
        `{"kind": "epoch", "epoch", "loss", "accuracy"}` after each epoch, with the accuracy on the
        test images. At the end a dict of kind `"report"` with `epochs`, `samples`, `loss`,
        `accuracy` and `seconds`.

    Raises:
        FloatingPointError: the loss or a weight is no longer finite.
    """
    begin = time.perf_counter()
    rng = np.random.default_rng(seed)
    digits = load_digits()
    order = rng.permutation(len(digits.target))
    # Values from 0 to 16; the last column is the bias.
    images = np.hstack([digits.data[order] / 16.0, np.ones((len(order), 1))])
    labels = digits.target[order]
    x, y = images[:TRAINED_ON], labels[:TRAINED_ON]
    x_test, y_test = images[TRAINED_ON:], labels[TRAINED_ON:]

    weights = np.zeros((x.shape[1], CLASSES))
    loss = accuracy = float("nan")
    print(f"{len(x)} images to train on, {len(x_test)} to test with")
    for epoch in range(1, epochs + 1):
        shuffled = rng.permutation(len(x))
        losses = []
        for start in range(0, len(x), batch_size):
            batch = shuffled[start : start + batch_size]
            with np.errstate(all="ignore"):
                step_loss, gradient = loss_and_gradient(weights, x[batch], y[batch])
                weights -= learning_rate * gradient
            losses.append(step_loss)
        loss = float(np.mean(losses))
        if not np.isfinite(weights).all() or not np.isfinite(loss):
            raise FloatingPointError(
                f"the loss is not a number after epoch {epoch}; a smaller learning_rate may help"
            )
        accuracy = float(((x_test @ weights).argmax(axis=1) == y_test).mean())
        # Print ten lines, however many epochs there are.
        if epoch % max(epochs // 10, 1) == 0:
            print(f"epoch {epoch} of {epochs}: loss {loss:.4f}, accuracy {accuracy:.4f}", flush=True)
        yield {"kind": "epoch", "epoch": epoch, "loss": loss, "accuracy": accuracy}
    yield {
        "kind": "report",
        "epochs": epochs,
        "samples": len(x),
        "loss": loss,
        "accuracy": accuracy,
        "seconds": time.perf_counter() - begin,
    }


def loss_and_gradient(
    weights: NDArray[np.float64], x: NDArray[np.float64], y: NDArray[np.int64]
) -> tuple[float, NDArray[np.float64]]:
    """Return the mean cross-entropy of a batch, and its gradient."""
    scores = x @ weights
    scores -= scores.max(axis=1, keepdims=True)
    likelihood = np.exp(scores)
    likelihood /= likelihood.sum(axis=1, keepdims=True)
    rows = np.arange(len(y))
    loss = float(-np.log(likelihood[rows, y] + 1e-12).mean())
    likelihood[rows, y] -= 1.0
    gradient: NDArray[np.float64] = x.T @ likelihood / len(y)
    return loss, gradient
