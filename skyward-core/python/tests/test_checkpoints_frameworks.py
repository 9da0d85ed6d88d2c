"""Trainings of frameworks that are killed, and end as undisturbed ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

pytestmark = pytest.mark.frameworks

_KERAS: Final = """
import hashlib, json, os, signal, sys
import numpy as np
import keras
import skyward as sky

kill_at = int(sys.argv[1])
keras.utils.set_random_seed(3)
values = np.random.default_rng(1)
x, y = values.normal(size=(64, 8)).astype("float32"), values.normal(size=(64, 1)).astype("float32")
model = keras.Sequential([keras.layers.Dense(16, activation="relu"), keras.layers.Dropout(0.3), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.01), "mse")

class Kill(keras.callbacks.Callback):
    epochs = []
    def on_epoch_begin(self, epoch, logs=None):
        self.epochs.append(epoch)
    def on_train_batch_end(self, batch, logs=None):
        if self.epochs[-1] == kill_at and batch == 1:
            os.kill(os.getpid(), signal.SIGKILL)

kill = Kill()
with sky.checkpoints("run", keep=2) as ckpt:
    model.fit(x, y, batch_size=16, epochs=6, verbose=0,
              callbacks=[sky.integrations.keras_checkpoint(ckpt), kill])
weights = hashlib.sha256(b"".join(np.asarray(weight).tobytes() for weight in model.get_weights()))
print(json.dumps({"begun": kill.epochs, "weights": weights.hexdigest()}))
"""

_TRAINER: Final = """
import hashlib, json, os, signal, sys
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments
import skyward as sky

kill_at = int(sys.argv[1])

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, index):
        return {"x": torch.full((4,), float(index) / 40), "labels": torch.tensor([float(index % 7)])}

class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.inner = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
    def forward(self, x, labels=None):
        out = self.inner(x)
        return {"loss": ((out - labels) ** 2).mean(), "logits": out}

class Kill(TrainerCallback):
    steps = []
    def on_step_begin(self, args, state, control, **_):
        self.steps.append(state.global_step)
        if state.global_step == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

arguments = TrainingArguments(
    "out", per_device_train_batch_size=4, num_train_epochs=3, save_strategy="steps", save_steps=4, report_to=[],
    disable_tqdm=True, use_cpu=True, learning_rate=0.01, save_total_limit=1, logging_strategy="no",
)
kill = Kill()
with sky.checkpoints("run", keep=2) as ckpt:
    trainer = Trainer(Line(), arguments, train_dataset=Data(),
                      callbacks=[sky.integrations.trainer_checkpoint(ckpt), kill])
    start = ckpt.latest()
    trainer.train(resume_from_checkpoint=str(start.path) if start else None)
weights = hashlib.sha256(b"".join(weight.numpy().tobytes() for weight in trainer.model.state_dict().values()))
print(json.dumps({"begun": kill.steps, "weights": weights.hexdigest()}))
"""


def train(folder: Path, script: str, *arguments: str, **variables: str) -> dict[str, Any] | None:
    """Run a training in a folder; return what it prints, or None if it was killed."""
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(script)
    package = Path(__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": str(package), "CUDA_VISIBLE_DEVICES": "", **variables}
    command = [sys.executable, "train.py", *arguments]
    ended = subprocess.run(
        command, check=False, cwd=folder, env=environment, capture_output=True, text=True, timeout=240
    )
    if ended.returncode == -signal.SIGKILL:
        return None
    assert ended.returncode == 0, ended.stderr
    result: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return result


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_a_training_of_keras_goes_on_from_the_last_epoch(tmp_path: Path, backend: str) -> None:
    whole = train(tmp_path / "whole", _KERAS, "-1", KERAS_BACKEND=backend)
    assert whole is not None
    assert whole["begun"] == [0, 1, 2, 3, 4, 5]
    for kill_at in ("2", "4"):
        assert train(tmp_path / "killed", _KERAS, kill_at, KERAS_BACKEND=backend) is None
    ended = train(tmp_path / "killed", _KERAS, "-1", KERAS_BACKEND=backend)
    assert ended == {"begun": [4, 5], "weights": whole["weights"]}


def test_a_training_of_trainer_goes_on_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", _TRAINER, "-1")
    assert whole is not None
    assert whole["begun"] == list(range(30))
    for kill_at in ("6", "15"):
        assert train(tmp_path / "killed", _TRAINER, kill_at) is None
    ended = train(tmp_path / "killed", _TRAINER, "-1")
    assert ended == {"begun": list(range(12, 30)), "weights": whole["weights"]}
