"""Syntax that not every Python has."""

# /// script
# requires-python = ">=3.11"
# ///

type Epochs = int


def train(epochs: Epochs) -> int:
    """Handle several exceptions at once."""
    try:
        return epochs
    except* ValueError:
        pass
    return 0
