"""Decorators that put a framework into the pool's world before the payload's function runs."""

from __future__ import annotations

from typing import NoReturn

from .. import _unknown
from .jax import jax
from .keras import keras
from .torch import torch
from .transformers import transformers

__all__ = ["jax", "keras", "torch", "transformers"]


def __getattr__(name: str) -> NoReturn:
    raise AttributeError(_unknown(__name__, name, __all__))
