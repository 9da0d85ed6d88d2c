"""The `Trainer` of Transformers with the process group of the torch hook, on CPUs."""

from __future__ import annotations

from pathlib import Path

from .ranks import World, require, torch

require("transformers", "accelerate", "torch")

TRAIN = """
import torch
from transformers import Trainer, TrainingArguments

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 16
    def __getitem__(self, index):
        return {"x": torch.full((4,), float(index)), "labels": torch.tensor([float(index)])}

class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.inner = torch.nn.Linear(4, 1)
    def forward(self, x, labels=None):
        out = self.inner(x)
        return {"loss": ((out - labels) ** 2).mean(), "logits": out}

def run():
    arguments = TrainingArguments(
        FOLDER, per_device_train_batch_size=2, num_train_epochs=1, report_to=[], save_strategy="no", disable_tqdm=True
    )
    trainer = Trainer(Line(), arguments, train_dataset=Data())
    steps = trainer.train().global_step
    weights = [float(weight) for weight in trainer.model.state_dict()["inner.weight"].flatten()]
    return {"ranks": arguments.world_size, "steps": steps, "weights": weights}

result = [task(run), task(run, gang=False) if dist.get_rank() == 1 else None]
"""


def test_the_ranks_of_a_group_on_cpus_train_together_and_a_task_alone_by_itself(tmp_path: Path) -> None:
    body = f"""
import torch.distributed as dist
FOLDER = {str(tmp_path)!r}
{TRAIN}"""
    with World(2) as world:
        first, second = (rank.result for rank in world.run(torch(), body=body))
    # Sixteen samples in batches of two are four steps of two ranks, or eight of one.
    assert (first[0]["ranks"], first[0]["steps"]) == (2, 4)
    assert first[0] == second[0]
    assert (second[1]["ranks"], second[1]["steps"]) == (1, 8)
