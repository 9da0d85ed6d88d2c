# /// script
# requires-python = ">=3.10"
# dependencies = ["numpy", "scikit-learn"]
# ///
"""Trains a small vision transformer on scikit-learn's digits with the `Trainer` of Transformers.

The code does not depend on a pool: with `plugins::transformers()`, a broadcast trains one model on
all workers, and a task on a single worker trains a model of its own.
"""

import hashlib
import tempfile
from typing import Any

import torch
from sklearn.datasets import load_digits
from transformers import (
    Trainer,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
    set_seed,
)

# Of 1797 images. The first number is divisible by many numbers of workers and batch sizes.
TRAINED_ON = 1408
HELD_OUT = 384

MODEL = ViTConfig(
    image_size=8,
    patch_size=2,
    num_channels=1,
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=128,
    num_labels=10,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    initializer_range=0.1,
)


def train(epochs: int, batch_size: int, seed: int = 0) -> dict[str, Any]:
    """Train on a part of the images, and test on the others.

    Args:
        epochs: passes over the data.
        batch_size: images per step of each rank.
        seed: selects the initial weights and the order of the images; the same on every rank.

    Returns:
        A dict of this process's `rank`; `ranks`, the number of ranks that trained together
        according to `Trainer`; the number of `steps` of each; the `loss` of each epoch over all
        ranks; `test_accuracy`; and `weights_digest`, a hash of the trained weights.
    """
    set_seed(seed)
    digits = load_digits()
    # Images of 8 by 8 pixels, values from 0 to 16, shuffled because they are sorted by writer.
    order = torch.randperm(len(digits.target))
    images = (torch.from_numpy(digits.images).float() / 8.0 - 1.0)[order].unsqueeze(1)
    labels = torch.from_numpy(digits.target).long()[order]
    # The keys are the names of the model's arguments.
    data = [{"pixel_values": image, "labels": label} for image, label in zip(images, labels, strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            ViTForImageClassification(MODEL),
            TrainingArguments(
                folder,
                num_train_epochs=epochs,
                per_device_train_batch_size=batch_size,
                per_device_eval_batch_size=batch_size,
                learning_rate=3e-3,
                logging_strategy="epoch",
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
                seed=seed,
            ),
            train_dataset=data[:TRAINED_ON],
            eval_dataset=data[-HELD_OUT:],
            compute_metrics=lambda found: {
                "accuracy": float((found.predictions.argmax(axis=1) == found.label_ids).mean())
            },
        )
        steps = trainer.train().global_step
        found = trainer.evaluate()
    weights = trainer.accelerator.unwrap_model(trainer.model).state_dict()
    raw = b"".join(weight.cpu().numpy().tobytes() for weight in weights.values())
    return {
        "rank": trainer.args.process_index,
        "ranks": trainer.args.world_size,
        "steps": steps,
        "loss": [entry["loss"] for entry in trainer.state.log_history if "loss" in entry],
        "test_accuracy": found["eval_accuracy"],
        "weights_digest": hashlib.sha256(raw).hexdigest()[:16],
    }
