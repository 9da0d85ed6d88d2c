# /// script
# requires-python = ">=3.10"
# dependencies = ["numpy", "scikit-learn"]
# ///
"""Trains a small network on scikit-learn's digits, and goes on from its last checkpoint.

Images come from a `DataLoader` with two processes. The script runs outside a pool as well: then
its checkpoints are in the folder `checkpoints`.
"""

import os
from typing import Any

import skyward as sky
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train(epochs: int, crash_after: int = 0) -> dict[str, Any]:
    """Train, with a checkpoint after each epoch.

    Args:
        epochs: passes over the data, those of earlier tries among them.
        crash_after: the process ends without a word after this epoch, if it began with the first.

    Returns:
        A dict of `first_epoch`, with which this try began; the `loss` of each epoch, those of
        earlier tries among them; and the `accuracy` on held-out images.
    """
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.from_numpy(digits.data).float() / 16.0
    labels = torch.from_numpy(digits.target).long()
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    loss: list[float] = []
    with sky.checkpoints("digits") as ckpt:
        start = ckpt.latest()
        if start is not None:
            state = torch.load(start.path / "state.pt")
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            loss = state["loss"]
        first_epoch = len(loss)
        for epoch in range(first_epoch, epochs):
            # The order of each epoch is the same in every try.
            order = torch.Generator().manual_seed(epoch)
            data = TensorDataset(images[:1500], labels[:1500])
            loader = DataLoader(data, batch_size=100, shuffle=True, generator=order, num_workers=2)
            total = 0.0
            for x, y in loader:
                optimizer.zero_grad()
                found = nn.functional.cross_entropy(model(x), y)
                found.backward()
                optimizer.step()
                total += found.item() * len(y)
            loss.append(total / 1500)
            with ckpt.save(epoch, meta={"loss": loss[-1]}) as folder:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "loss": loss}
                torch.save(state, folder / "state.pt")
            print(f"epoch {epoch}: loss {loss[-1]:.4f}")
            if first_epoch == 0 and epoch + 1 == crash_after:
                ckpt.wait()
                os._exit(1)
    with torch.no_grad():
        accuracy = (model(images[1500:]).argmax(1) == labels[1500:]).float().mean().item()
    return {"first_epoch": first_epoch, "loss": loss, "accuracy": accuracy}


if __name__ == "__main__":
    print(train(5))
