"""Keras on PyTorch: its models are torch modules, which `DistributedDataParallel` wraps like any other."""

import hashlib
from typing import Any

import keras
import skyward as sky
import torch
from sklearn.datasets import load_digits
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def train(epochs: int, batch_size: int) -> dict[str, Any]:
    """Train on this rank's part of scikit-learn's digits; DDP averages the gradients of all ranks.

    Args:
        epochs: passes over the data.
        batch_size: images in one step of this rank.

    Returns:
        `rank`, `samples` that this rank trained on, `loss` of each epoch over these, `accuracy` on images
        that no rank trained on, and `weights`, a digest of the trained weights.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    info = sky.instance_info()
    digits = load_digits()
    images = torch.from_numpy(digits.data / 16).float()
    labels = torch.from_numpy(digits.target).long()
    # Its parts are of equal size, so all ranks make the same number of steps.
    trained_on = TensorDataset(images[:1408], labels[:1408])
    sampler: Any = DistributedSampler(trained_on, info.total_workers, info.rank, seed=0)
    loader: Any = DataLoader(trained_on, batch_size, sampler=sampler)

    model = keras.Sequential(
        [
            keras.Input((64,)),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    parallel = DDP(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    criterion = torch.nn.CrossEntropyLoss()
    losses = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        total = 0.0
        for x, y in loader:
            loss = criterion(parallel(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(x)
        losses.append(total / len(sampler))

    with torch.no_grad():
        found = model(images[1408:].to(device)).argmax(dim=1).cpu()
    weights = b"".join(weight.detach().cpu().numpy().tobytes() for weight in model.parameters())
    return {
        "rank": info.rank,
        "samples": len(sampler),
        "loss": losses,
        "accuracy": (found == labels[1408:]).float().mean().item(),
        "weights": hashlib.sha256(weights).hexdigest()[:16],
    }
