# /// script
# requires-python = ">=3.10"
# dependencies = ["numpy", "scikit-learn"]
# ///
"""Trains a small PyTorch model on scikit-learn's digits with `DistributedDataParallel`.

The `torch` plugin creates the process group before this code runs.
"""

import hashlib
from typing import Any

import skyward as sky
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

# Of 1797 images. The first number is divisible by many numbers of workers and batch sizes.
TRAINED_ON = 1408
HELD_OUT = 384


def train(epochs: int, batch_size: int, seed: int = 0) -> dict[str, Any]:
    """Train on this rank's part of the images, test on held-out images, and compare the weights.

    Args:
        epochs: passes over the data.
        batch_size: images per step, summed over all ranks.
        seed: selects the order of the images and the initial weights; the same on every rank.

    Returns:
        A dict of `node`; `rank`; `samples`, the images that this rank trained on; the `loss` of
        each epoch on this rank's part; `test_accuracy`; and `weights_digest`, a hash of the trained
        weights.

    Raises:
        RuntimeError: the ranks ended with different weights.
    """
    info = sky.instance_info()
    if not info.total_workers <= batch_size <= TRAINED_ON:
        raise ValueError(
            f"batch_size is {batch_size}, which is not between {info.total_workers} and {TRAINED_ON}"
        )
    torch.manual_seed(seed)
    device = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")

    digits = load_digits()
    # Images of shape (1797, 64), values from 0 to 16, in the same order for any number of ranks.
    order = torch.randperm(len(digits.target))
    images = (torch.from_numpy(digits.data).float() / 16.0)[order]
    labels = torch.from_numpy(digits.target).long()[order]

    x, y = sky.shard(images[:TRAINED_ON], labels[:TRAINED_ON], shuffle=True, seed=seed, drop_last=True)
    x_test, y_test = images[-HELD_OUT:].to(device), labels[-HELD_OUT:].to(device)
    # Each step waits for all ranks, so all need the same number of steps.
    local_batch = batch_size // info.total_workers
    samples = len(x) // local_batch * local_batch
    x, y = x[:samples].to(device), y[:samples].to(device)

    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    model = DistributedDataParallel(net) if dist.is_initialized() else net
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    criterion = nn.CrossEntropyLoss()
    losses = []
    for _ in range(epochs):
        total = 0.0
        shuffled = torch.randperm(samples).to(device)
        for start in range(0, samples, local_batch):
            batch = shuffled[start : start + local_batch]
            optimizer.zero_grad()
            loss = criterion(model(x[batch]), y[batch])
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        losses.append(total / samples)

    with torch.no_grad():
        accuracy = (net(x_test).argmax(dim=1) == y_test).float().mean().item()
    weights = b"".join(weight.detach().cpu().numpy().tobytes() for weight in net.parameters())
    digest = hashlib.sha256(weights).hexdigest()[:16]
    if dist.is_initialized():
        digests = [""] * dist.get_world_size()
        dist.all_gather_object(digests, digest)
        if len(set(digests)) != 1:
            raise RuntimeError(f"the ranks ended with different weights: {digests}")
    return {
        "node": info.node,
        "rank": info.rank,
        "samples": samples,
        "loss": losses,
        "test_accuracy": accuracy,
        "weights_digest": digest,
    }
