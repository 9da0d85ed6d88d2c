"""The training."""

from trainer.data import digits


def fit(epochs: int) -> int:
    """Count what is seen."""
    return epochs * len(digits())
