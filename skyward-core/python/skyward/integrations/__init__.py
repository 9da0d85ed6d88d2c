"""Decorators that put a framework into the pool's world before the payload's function runs, and joblib's backend."""

from __future__ import annotations

from typing import NoReturn

from .. import _unknown
from .jax import jax
from .joblib import BackendError, JoblibPool, ScikitLearnPool, joblib_backend, sklearn_backend
from .keras import keras
from .torch import torch
from .transformers import transformers

__all__ = [
    "BackendError",
    "JoblibPool",
    "ScikitLearnPool",
    "jax",
    "joblib_backend",
    "keras",
    "sklearn_backend",
    "torch",
    "transformers",
]


def __getattr__(name: str) -> NoReturn:
    raise AttributeError(_unknown(__name__, name, __all__))
