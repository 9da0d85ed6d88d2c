"""Needs the files beside it."""

import misspelt

from .train import train


def run() -> object:
    """Run both."""
    return train, misspelt
