"""The distribution of Keras that each gang begins with.

A payload may set another one, which then applies to its task only: on another rank the next gang
could find another distribution, or none.
"""

from __future__ import annotations

from typing import Any

_given: Any = None


def is_given() -> bool:
    """Return whether a plugin or a decorator has given a distribution."""
    return _given is not None


def give(distribution: Any) -> None:
    """Set the distribution for this task, and for each gang after it."""
    global _given
    _given = distribution
    put(distribution)


def restore() -> None:
    """Set the given distribution, if a task has set or removed another one since."""
    import keras

    if keras.distribution.distribution() is not _given:
        put(_given)


def put(distribution: Any) -> None:
    """Set a distribution, or none, until the next gang begins."""
    import keras

    keras.distribution.set_distribution(distribution)
