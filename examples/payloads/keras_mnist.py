# /// script
# requires-python = ">=3.10"
# dependencies = ["jax", "keras>=3.11", "numpy", "scikit-learn"]
# ///
"""Trains a Keras model on handwritten digits. The decorator joins the workers, without a plugin."""

from typing import Any

import numpy as np
import skyward as sky

# Of scikit-learn's 1797 images. The number is divisible by many numbers of workers and batch sizes.
TRAINED_ON = 1408


def digits() -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Return scikit-learn's digits in the form of `keras.datasets.mnist.load_data()`."""
    from sklearn.datasets import load_digits

    found = load_digits()
    order = np.random.default_rng(0).permutation(len(found.target))
    images = (found.images[order] * (255 / 16)).astype(np.uint8)
    labels = found.target[order].astype(np.uint8)
    return (images[:TRAINED_ON], labels[:TRAINED_ON]), (images[TRAINED_ON:], labels[TRAINED_ON:])


@sky.compute
@sky.stdout(only="head")
@sky.integrations.keras(backend="jax", seed=42)
def train(epochs: int, batch_size: int, mnist: bool = False) -> dict[str, Any]:
    """Train on this worker's part of the images, and test on all test images.

    Args:
        epochs: passes over the data.
        batch_size: images per step of this worker.
        mnist: use MNIST, which each worker downloads, instead of scikit-learn's images.

    Returns:
        A dict of `node`; `samples`, the images that this worker trained on; the `loss` of each
        epoch; and the `accuracy` on the test images.
    """
    # Import Keras only here: at import it reads the backend, which the decorator sets.
    import keras

    (x_train, y_train), (x_test, y_test) = keras.datasets.mnist.load_data() if mnist else digits()
    # All workers take part in each step, so `drop_last` gives them equal numbers of images.
    x_train, y_train = sky.shard(x_train / 255.0, y_train, shuffle=True, seed=42, drop_last=True)

    model = keras.Sequential(
        [
            keras.Input(x_train.shape[1:]),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )

    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    history = model.fit(x_train, y_train, epochs=epochs, batch_size=batch_size, verbose=2)
    _, accuracy = model.evaluate(x_test / 255.0, y_test, verbose=0)
    return {
        "node": sky.instance_info().node,
        "samples": len(x_train),
        "loss": history.history["loss"],
        "accuracy": accuracy,
    }
