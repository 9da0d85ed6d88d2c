# /// script
# requires-python = ">=3.10"
# dependencies = ["numpy", "scikit-learn"]
# ///
"""Trains a small BERT on scikit-learn's handwritten digits with the `Trainer` of Transformers.

Nothing in it knows of a pool: under `plugins::transformers()` all workers train one model in a broadcast, and a task that
one worker runs alone trains a model of its own.
"""

import hashlib
import os
import tempfile
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)

# Of 1797 images. The first number can be divided by many numbers of workers and sizes of batches.
TRAINED_ON = 768
HELD_OUT = 256

# An image of 8 × 8 pixels is a sentence of 16 words: each is how dark four of the pixels are, from 0 to 64.
MODEL = BertConfig(
    vocab_size=65,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=16,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    num_labels=10,
)


class Digits(Dataset[dict[str, torch.Tensor]]):
    """Images as sentences, and the digits that they show."""

    def __init__(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        """The number of images."""
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        """One image, under the names of the model's arguments."""
        return {"input_ids": self.images[index], "labels": self.labels[index]}


def train(epochs: int, batch_size: int, seed: int = 0) -> dict[str, Any]:
    """Train on the images, test on images that were not trained on, and compare.

    Args:
        epochs: passes over the data.
        batch_size: images in one step of each rank.
        seed: chooses the first weights and the order of the images; the same on every rank.

    Returns:
        The `process` that this rank is, its `rank` and the `ranks` that trained together, the `steps` that each took,
        `loss` over all ranks of each epoch, `test_loss` and `test_accuracy`, and `weights_digest`, a hash of the
        trained weights.
    """
    set_seed(seed)
    digits = load_digits()
    blocks = digits.images.reshape(-1, 4, 2, 4, 2).sum(axis=(2, 4)).reshape(-1, 16)
    images, labels = torch.from_numpy(blocks).long(), torch.from_numpy(digits.target).long()
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            BertForSequenceClassification(MODEL),
            TrainingArguments(
                folder,
                num_train_epochs=epochs,
                per_device_train_batch_size=batch_size,
                per_device_eval_batch_size=batch_size,
                learning_rate=5e-3,
                logging_strategy="epoch",
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
                seed=seed,
                # The model computes its loss as a mean. Otherwise Trainer takes it for a part of the mean over all
                # ranks, and multiplies the loss by their number.
                average_tokens_across_devices=False,
            ),
            train_dataset=Digits(images[:TRAINED_ON], labels[:TRAINED_ON]),
            eval_dataset=Digits(images[-HELD_OUT:], labels[-HELD_OUT:]),
            compute_metrics=lambda found: {
                "accuracy": float((found.predictions.argmax(axis=1) == found.label_ids).mean())
            },
        )
        steps = trainer.train().global_step
        found = trainer.evaluate()
    weights = trainer.accelerator.unwrap_model(trainer.model).state_dict()
    raw = b"".join(weight.cpu().numpy().tobytes() for weight in weights.values())
    return {
        "process": os.getpid(),
        "rank": trainer.args.process_index,
        "ranks": trainer.args.world_size,
        "steps": steps,
        "loss": [entry["loss"] for entry in trainer.state.log_history if "loss" in entry],
        "test_loss": found["eval_loss"],
        "test_accuracy": found["eval_accuracy"],
        "weights_digest": hashlib.sha256(raw).hexdigest()[:16],
    }
