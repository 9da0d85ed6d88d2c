# /// script
# requires-python = ">=3.10"
# dependencies = ["numpy", "scikit-learn"]
# ///
"""Trains a small Keras model on scikit-learn's handwritten digits, on all workers of the pool.

The images are part of scikit-learn, so nothing is downloaded. The `jax` and `keras` plugins join
the workers before this code runs, so it is ordinary Keras code: each worker feeds its own part of
the data, and `fit` averages the gradients.
"""

import hashlib
from typing import Any

import keras
import numpy as np
import skyward as sky
from sklearn.datasets import load_digits

# Of 1797 images. Both numbers are divisible by many numbers of workers and batch sizes.
TRAINED_ON = 1408
HELD_OUT = 384


def train(epochs: int, batch_size: int, seed: int = 0) -> dict[str, Any]:
    """Train on this worker's part of the images, and test on images that no worker trained on.

    Args:
        epochs: passes over the data.
        batch_size: images per step, summed over all workers. So the number of steps does not depend
            on the number of workers.
        seed: selects the order of the images and the initial weights; the same on every worker.

    Returns:
        A dict of `node`; `samples`, the images that this worker trained on; the `loss` of each
        epoch; `test_accuracy`; and `weights_digest`, a hash of the trained weights. Loss, accuracy
        and digest belong to the one model that all workers share.
    """
    info = sky.instance_info()
    if not info.total_workers <= batch_size <= TRAINED_ON:
        raise ValueError(
            f"batch_size is {batch_size}, which is not between {info.total_workers} and {TRAINED_ON}"
        )
    keras.utils.set_random_seed(seed)

    digits = load_digits()
    # Images of shape (1797, 64), values from 0 to 16, in the same order for any number of workers.
    order = np.random.default_rng(seed).permutation(len(digits.target))
    images = (digits.data[order] / 16.0).astype(np.float32)
    labels = digits.target[order].astype(np.int32)

    x, y = sky.shard(images[:TRAINED_ON], labels[:TRAINED_ON], shuffle=True, seed=seed, drop_last=True)
    x_test, y_test = sky.shard(images[-HELD_OUT:], labels[-HELD_OUT:], drop_last=True)

    # All workers compute each step together, so all need the same number of steps and equal
    # batches.
    local_batch = batch_size // info.total_workers
    samples = len(x) // local_batch * local_batch
    x, y = x[:samples], y[:samples]

    model = keras.Sequential(
        [
            keras.Input((64,)),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.Adam(1e-2), "sparse_categorical_crossentropy", metrics=["accuracy"])
    history = model.fit(x, y, batch_size=local_batch, epochs=epochs, verbose=0)
    _, accuracy = model.evaluate(x_test, y_test, batch_size=len(x_test), verbose=0)

    weights = b"".join(np.asarray(weight).tobytes() for weight in model.get_weights())
    return {
        "node": info.node,
        "samples": samples,
        "loss": [float(loss) for loss in history.history["loss"]],
        "test_accuracy": float(accuracy),
        "weights_digest": hashlib.sha256(weights).hexdigest()[:16],
    }
