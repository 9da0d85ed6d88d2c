"""A payload of several files."""

from .fit import fit as train
from .data import digits

__all__ = ["digits", "train"]
