"""Functions that were written for the Python library run on a worker unchanged."""

from __future__ import annotations

import pytest

from .conftest import Node
from .pool import Pool
from .test_integrations import world


@pytest.mark.frameworks
def test_stacked_decorators_join_the_world_and_only_the_head_prints(node: Node) -> None:
    source = """
import skyward as sky

@sky.compute
@sky.stdout(only="head")
@sky.integrations.torch
def main():
    import torch.distributed as dist
    print("Training...")
    return dist.get_world_size()
"""
    assert world(node, source) == [2, 2]
    printed = [(node.folder / "g1" / f"w{index}.out").read_text() for index in range(2)]
    assert ["Training..." in text for text in printed] == [True, False]


@pytest.mark.frameworks
def test_ddp_averages_the_gradients_of_all_ranks(node: Node) -> None:
    source = """
import skyward as sky

@sky.compute
@sky.integrations.torch
def main():
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel as DDP

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(dist.get_rank())
    model = DDP(torch.nn.Linear(1, 1, bias=False).to(device))
    own = float(dist.get_rank() + 1)
    model(torch.tensor([[own]], device=device)).sum().backward()
    weight = model.module.weight
    return own, weight.grad.item(), weight.item()
"""
    (first, first_gradient, weight), (second, second_gradient, other) = world(node, source)
    assert (first, second) == (1.0, 2.0)
    assert first_gradient == second_gradient == (first + second) / 2
    # The ranks drew different weights; those of the head are used.
    assert weight == other


@pytest.mark.frameworks
def test_trainer_trains_and_evaluates_on_all_ranks(node: Node) -> None:
    source = """
import skyward as sky
import torch

class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 1)
    def forward(self, x, labels=None):
        out = self.inner(x)
        return {"loss": ((out - labels) ** 2).mean(), "logits": out}

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 16
    def __getitem__(self, index):
        return {"x": torch.full((4,), index / 16), "labels": torch.tensor([index / 16])}

@sky.compute
@sky.integrations.transformers(backend="gloo")
def main():
    import tempfile
    from transformers import Trainer, TrainingArguments
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, per_device_train_batch_size=2, num_train_epochs=1, report_to=[], save_strategy="no",
            disable_tqdm=True,
        )
        trainer = Trainer(Line(), arguments, train_dataset=Data(), eval_dataset=Data())
        trainer.train()
        return trainer.state.global_step, arguments.world_size, trainer.evaluate()["eval_loss"]
"""
    first, second = world(node, source)
    # Sixteen samples in batches of two are four steps of two ranks.
    assert first[:2] == [4, 2]
    assert first == second


@pytest.mark.frameworks
def test_pools_for_joblib_and_scikit_learn_stand_for_the_pool_that_runs_the_payload(node: Node) -> None:
    source = """
import skyward as sky
from joblib import Parallel, delayed
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

def process(x):
    return x ** 2

def ranks(x):
    return sky.instance_info().rank

def main():
    digits = load_digits(n_class=3)
    x, y = digits.data[:150], digits.target[:150]
    param_grid = {"C": [0.1, 1, 10], "gamma": [1e-3, 1e-2]}
    with sky.integrations.JoblibPool(provider=None, nodes=4, concurrency=4):
        results = Parallel(n_jobs=-1)(delayed(process)(x) for x in range(100))
        used = Parallel(n_jobs=-1, batch_size=1)(delayed(ranks)(x) for x in range(50))
    with sky.integrations.ScikitLearnPool(provider=None, nodes=4, concurrency=4):
        grid = GridSearchCV(SVC(), param_grid, cv=5, n_jobs=-1)
        grid.fit(x, y)
    pool = object()
    with sky.integrations.sklearn_backend(pool):
        again = GridSearchCV(SVC(), param_grid, cv=5, n_jobs=-1)
        again.fit(x, y)
    alone = GridSearchCV(SVC(), param_grid, cv=5).fit(x, y)
    scores = [list(it.cv_results_["mean_test_score"]) for it in (grid, again, alone)]
    return results == [x ** 2 for x in range(100)], sorted(set(used)), scores
"""
    pool = Pool(node, 2, source)
    right, ranks, (grid, again, alone) = pool.call()
    assert right
    assert ranks == [0, 1]
    assert grid == again == alone
