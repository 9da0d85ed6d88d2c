"""Decorators that join frameworks to the pool's world, and joblib's backend.

Each framework decorator may be used with or without arguments: `@sky.integrations.torch` and
`@sky.integrations.torch(backend="gloo")`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from .._core.unknown import unknown
from ._joblib_error import BackendError
from .jax import jax
from .joblib import JoblibPool, ScikitLearnPool, joblib_backend, sklearn_backend
from .keras import keras
from .keras_checkpoint import keras_checkpoint
from .torch import torch
from .trainer_checkpoint import trainer_checkpoint
from .transformers import transformers

__all__ = [
    "BackendError",
    "JoblibPool",
    "ScikitLearnPool",
    "jax",
    "joblib_backend",
    "keras",
    "keras_checkpoint",
    "sklearn_backend",
    "torch",
    "trainer_checkpoint",
    "transformers",
]


if not TYPE_CHECKING:
    # A type checker would take any name for one of this module.
    def __getattr__(name: str) -> NoReturn:
        raise AttributeError(unknown(__name__, name, __all__))
