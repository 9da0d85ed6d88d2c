# /// script
# requires-python = ">=3.10"
# dependencies = ["numpy", "scikit-learn"]
# ///
"""Trains a small Keras model on scikit-learn's handwritten digits, on all nodes of the pool together."""

from typing import Any

import keras
import numpy as np
import skyward as sky
from sklearn.datasets import load_digits


def train(epochs: int) -> dict[str, Any]:
    """Train on this node's part of the images, and test on images that no node has trained on."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images = (digits.data[order] / 16).astype(np.float32)
    labels = digits.target[order].astype(np.int32)

    # A step is one computation over all nodes: `drop_last` gives each of them equally many images.
    x, y = sky.shard(images[:1408], labels[:1408], drop_last=True)
    x_test, y_test = sky.shard(images[1408:], labels[1408:], drop_last=True)

    model = keras.Sequential(
        [
            keras.Input((64,)),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.Adam(1e-2), "sparse_categorical_crossentropy", metrics=["accuracy"])
    losses = model.fit(x, y, batch_size=32, epochs=epochs, verbose=0).history["loss"]
    _, accuracy = model.evaluate(x_test, y_test, batch_size=len(x_test), verbose=0)
    return {
        "node": sky.instance_info().node,
        "images": len(x),
        "first_loss": float(losses[0]),
        "last_loss": float(losses[-1]),
        "accuracy": float(accuracy),
    }
