"""Trainings of frameworks that are killed at any moment, also between two writes of a save, and end as undisturbed ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.frameworks

_TRAINER: Final = """
import torch
from transformers import Trainer, TrainingArguments

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 16
    def __getitem__(self, index):
        return {"x": torch.full((4,), float(index) / 16), "labels": torch.tensor([float(index % 7)])}

class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.inner = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
    def forward(self, x, labels=None):
        out = self.inner(x)
        return {"loss": ((out - labels) ** 2).mean(), "logits": out}

def run():
    import skyward as sky

    arguments = TrainingArguments(
        "out", per_device_train_batch_size=4, num_train_epochs=2, save_strategy="steps", save_steps=3, report_to=[],
        disable_tqdm=True, use_cpu=True, learning_rate=0.01, save_total_limit=1, logging_strategy="no",
    )
    with sky.checkpoints("run", keep=1) as ckpt:
        trainer = Trainer(Line(), arguments, train_dataset=Data(),
                          callbacks=[sky.integrations.trainer_checkpoint(ckpt)])
        start = ckpt.latest()
        trainer.train(resume_from_checkpoint=str(start.path) if start else None)
    return [weight.numpy() for weight in trainer.model.state_dict().values()]
"""

_KERAS: Final = """
import os
os.environ["KERAS_BACKEND"] = "torch"
import keras
import numpy as np

def run():
    import skyward as sky

    keras.utils.set_random_seed(3)
    values = np.random.default_rng(1)
    x, y = values.normal(size=(32, 8)).astype("float32"), values.normal(size=(32, 1)).astype("float32")
    model = keras.Sequential([keras.layers.Dense(8), keras.layers.Dropout(0.3), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01), "mse")
    with sky.checkpoints("run", keep=1) as ckpt:
        model.fit(x, y, batch_size=16, epochs=3, verbose=0, callbacks=[sky.integrations.keras_checkpoint(ckpt)])
    return model.get_weights()
"""

_KILLS: Final = """
import hashlib, json, os, pathlib, random, signal, sys, time
import numpy as np
import torch

torch.set_num_threads(1)
WRITES = ("os.rename", "os.link", "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "shutil.copyfile")
written = 0

def child(folder, write, seconds):
    '''Run the training in a process of its own; return what it prints, or None if it was killed.'''
    folder.mkdir(exist_ok=True)
    pid = os.fork()
    if pid == 0:
        try:
            os.chdir(folder)

            def hook(event, arguments):
                global written
                if event in WRITES or (event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)):
                    if written == write:
                        os.kill(os.getpid(), signal.SIGKILL)
                    written += 1

            sys.addaudithook(hook)
            # Nobody handles this signal, so it ends the process at once.
            signal.setitimer(signal.ITIMER_REAL, seconds)
            weights = b"".join(np.asarray(weight).tobytes() for weight in run())
            signal.setitimer(signal.ITIMER_REAL, 0)
            result = {"weights": hashlib.sha256(weights).hexdigest(), "written": written}
            pathlib.Path("result.json").write_text(json.dumps(result))
            code = 0
        except BaseException:
            import traceback
            traceback.print_exc()
            code = 1
        sys.stderr.flush()
        os._exit(code)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) in (signal.SIGKILL, signal.SIGALRM), status
        return None
    assert status == 0, status
    return json.loads((folder / "result.json").read_text())

here = pathlib.Path.cwd()
whole = child(here / "warm", -1, 0)
begun = time.monotonic()
whole = child(here / "whole", -1, 0)
took = time.monotonic() - begun
seed = int(sys.argv[1])
chosen = random.Random(seed)
kills = [(write, 0) for write in chosen.sample(range(whole["written"]), int(sys.argv[2]))]
kills += [(-1, chosen.uniform(0.05, 1.0) * took) for _ in range(int(sys.argv[2]))]
killed = 0
for number, (write, seconds) in enumerate(kills):
    folder = here / str(number)
    ended = child(folder, write, seconds)
    if ended is None:
        killed += 1
        ended = child(folder, -1, 0)
    assert ended is not None and ended["weights"] == whole["weights"], (seed, write, seconds, ended, whole)
    # What a killed save has left beside it is removed by the next save.
    left = [path.name for path in (folder / "checkpoints" / "run").iterdir() if path.name.isdigit()]
    assert len(left) == 1, (seed, write, seconds, left)
print(json.dumps({"killed": killed, "kills": len(kills), "took": took, "written": whole["written"]}))
"""


@pytest.mark.parametrize(("training", "seed"), [(_TRAINER, 11), (_KERAS, 12)], ids=["trainer", "keras"])
def test_whenever_it_is_killed_a_training_goes_on_with_the_same_weights(
    tmp_path: Path, training: str, seed: int
) -> None:
    (tmp_path / "train.py").write_text(training + _KILLS)
    package = Path(__file__).parents[1]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SKYWARD_")}
    ended = subprocess.run(
        [sys.executable, "train.py", str(seed), "10"],
        check=False,
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(package), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout.splitlines()[-1])
    assert result["killed"] >= 10, result
