"""`Trainer` with `plugins::transformers().checkpoints(…)`: scripts that know nothing of checkpoints, and continue."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

from .ranks import World, accelerate, require, run_alone

require("transformers", "accelerate", "torch")

TRAIN = """
import hashlib, os, pathlib, signal
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

rank = int(os.environ.get("RANK", "0"))
here = pathlib.Path(FOLDER, f"rank{rank}")
here.mkdir(parents=True, exist_ok=True)
os.chdir(here)

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 80
    def __getitem__(self, index):
        return {"x": torch.full((4,), float(index) / 80), "labels": torch.tensor([float(index % 7)])}

class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.inner = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
    def forward(self, x, labels=None):
        out = self.inner(x)
        return {"loss": ((out - labels) ** 2).mean(), "logits": out}

class Watch(TrainerCallback):
    def __init__(self):
        self.steps = []
    def on_step_begin(self, args, state, control, **_):
        self.steps.append(state.global_step)
        if state.global_step == KILL_AT:
            os.kill(os.getpid(), signal.SIGKILL)

def digest(model):
    return hashlib.sha256(b"".join(weight.numpy().tobytes() for weight in model.state_dict().values())).hexdigest()

def run(**more):
    options = {"save_strategy": "steps", "save_steps": 4, "num_train_epochs": 3, "save_total_limit": 2, **more}
    arguments = TrainingArguments(
        OUTPUT, per_device_train_batch_size=4, report_to=[], disable_tqdm=True, learning_rate=0.01,
        logging_strategy="no", **options,
    )
    watch = Watch()
    trainer = Trainer(Line(), arguments, train_dataset=Data(), eval_dataset=Data(), callbacks=[watch])
    trainer.train()
    return {"begun": watch.steps, "weights": digest(trainer.accelerator.unwrap_model(trainer.model)),
            "best": trainer.state.best_global_step}
"""

ONCE = f"{TRAIN}\nresult = task(run)"
NAMED = accelerate(checkpoints="run")


def names(folder: Path) -> list[int]:
    """Return the steps of the checkpoints in a folder."""
    return sorted(int(name) for name in os.listdir(folder) if name.isdigit())


def globals_of(folder: Path, output: str = "out", kill_at: int = -1) -> str:
    return f"FOLDER, OUTPUT, KILL_AT = {str(folder)!r}, {output!r}, {kill_at}"


def alone(folder: Path, body: str = ONCE, output: str = "out", kill_at: int = -1) -> Any:
    """Run a body in a world of one worker; return its result, or None if it was killed."""
    rank = run_alone(NAMED, body=f"{globals_of(folder, output, kill_at)}\n{body}", env={"OMP_NUM_THREADS": "1"})
    return None if rank.code == -signal.SIGKILL else rank.result


def test_a_script_without_a_word_of_checkpoints_continues_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    whole = alone(tmp_path / "whole")
    assert whole["begun"] == list(range(60))
    kept = tmp_path / "whole" / "rank0" / "checkpoints" / "run"
    assert names(kept) == [56, 60], "as save_total_limit says"
    killed = tmp_path / "killed"
    assert alone(killed, kill_at=10) is None
    assert alone(killed, kill_at=30) is None
    # Another machine has none of the folders of Trainer.
    shutil.rmtree(killed / "rank0" / "out")
    ended = alone(killed)
    assert (ended["begun"], ended["weights"]) == (list(range(28, 60)), whole["weights"])


def test_each_training_of_a_task_has_checkpoints_of_its_own(tmp_path: Path) -> None:
    body = f"""{TRAIN}
def twice():
    first = run(num_train_epochs=1)
    again = Trainer(Line(), TrainingArguments(OUTPUT + "2", report_to=[], disable_tqdm=True, max_steps=2,
                    save_steps=1), train_dataset=Data())
    again.train(resume_from_checkpoint=False)
    return [first["begun"][:1], again.state.global_step, digest(again.model)]

result = [task(twice), task(twice)]
"""
    first, second = alone(tmp_path, body)
    assert (first[:2], second[:2]) == ([[0], 2], [[], 2])
    assert first[2] == second[2], "a training that has ended within an epoch is not trained for another step"
    kept = tmp_path / "rank0" / "checkpoints"
    assert sorted(os.listdir(kept)) == ["run", "run.2"]
    assert (names(kept / "run"), names(kept / "run.2")) == ([16, 20], [1, 2])


def test_the_best_model_comes_back_on_another_machine(tmp_path: Path) -> None:
    body = f"""{TRAIN}
result = task(lambda: run(load_best_model_at_end=True, metric_for_best_model="loss", greater_is_better=True,
                          eval_strategy="epoch", save_strategy="epoch", save_total_limit=1))
"""
    whole = alone(tmp_path / "whole", body)
    # A loss that falls is the best at first, so the best model is never the latest one.
    assert whole["best"] == 20
    killed = tmp_path / "killed"
    assert alone(killed, body, kill_at=50) is None
    shutil.rmtree(killed / "rank0" / "out")
    ended = alone(killed, body)
    assert ended == {**whole, "begun": list(range(40, 60))}


def test_a_training_that_could_not_be_continued_is_refused(tmp_path: Path) -> None:
    rank = run_alone(NAMED, body=f"{globals_of(tmp_path)}\n{TRAIN}\nresult = task(lambda: run(save_only_model=True))")
    assert "TrainingArguments(save_only_model=True) cannot be continued" in rank.error


def join(folder: Path, ranks: int) -> int:
    """Give each rank the files of all ranks, as a pool does it; return the step."""
    folders = [folder / f"rank{rank}" / "checkpoints" / "run" for rank in range(ranks)]
    step = max(set.intersection(*(set(names(each)) for each in folders)))
    joined = folder / "joined"
    shutil.rmtree(joined, ignore_errors=True)
    for each in folders:
        content = each / f"{step:012}" / "content"
        for path in filter(Path.is_file, content.rglob("*")):
            target = joined / path.relative_to(content)
            target.parent.mkdir(parents=True, exist_ok=True)
            assert not target.exists() or target.read_bytes() == path.read_bytes(), target
            shutil.copyfile(path, target)
    for each in folders:
        for other in names(each):
            if other != step:
                shutil.rmtree(each / f"{other:012}")
        shutil.rmtree(each / f"{step:012}" / "content")
        shutil.copytree(joined, each / f"{step:012}" / "content")
    return step


def ranks(folder: Path, nodes: int, more: str, kill_at: int) -> list[Any]:
    """Train on two ranks, of one node or of two; return the result of each, or None if it was killed."""
    # The ranks of one node write into one folder.
    output = "out" if nodes == 2 else str(folder / "out")
    body = f"{globals_of(folder, output, kill_at)}\n{TRAIN}\nresult = task(lambda: run({more}))"
    with World(nodes, 2 // nodes) as world:
        ended = world.run(NAMED, body=body, env={"OMP_NUM_THREADS": "1"})
    assert all(rank.code in (0, -signal.SIGKILL) for rank in ended), [rank.error for rank in ended]
    return [None if rank.code else rank.result for rank in ended]


def test_the_ranks_of_a_world_continue_together(tmp_path: Path) -> None:
    whole = ranks(tmp_path / "whole", 2, "", -1)
    assert whole[0] == whole[1]
    assert whole[0]["begun"] == list(range(30))
    for nodes, more in ((1, ""), (2, "save_on_each_node=True")):
        killed = tmp_path / f"killed{nodes}"
        assert ranks(killed, nodes, more, 15) == [None, None]
        assert join(killed, 2) == 12
        found = {path.name for path in (killed / "joined").iterdir()}
        assert {"rng_state_0.pth", "rng_state_1.pth", "optimizer.pt", "trainer_state.json"} <= found
        assert json.loads((killed / "joined" / "trainer_state.json").read_text())["is_world_process_zero"]
        ended = ranks(killed, nodes, more, -1)
        assert ended == [{**whole[0], "begun": list(range(12, 30))}] * 2, nodes
