"""The hooks that run joblib's `Parallel` on the workers of the pool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from skyward import Retry, instance_info
from skyward._core import cores
from skyward._sky.cluster import is_in_gang
from skyward.integrations import joblib_backend
from skyward.integrations._wrap import environment
from skyward.integrations.joblib import register


@contextmanager
def around_app(config: Mapping[str, Any]) -> Iterator[None]:
    """Divide the node's cores among its workers, and load joblib.

    Args:
        config: `inner_threads`: the threads of each numeric library; None for the worker's share of
            the cores.

    Raises:
        BackendError: joblib is not installed, or is too old.
    """
    share = cores.share(instance_info().workers_per_node)
    # Libraries read the variables when they are loaded, and joblib loads NumPy.
    with environment(cores.variables(config["inner_threads"] or share, share)):
        register()
        yield


@contextmanager
def around_task(config: Mapping[str, Any]) -> Iterator[None]:
    """Enter the backend, except in a gang, which occupies all workers.

    Args:
        config: `caller_helps`: whether the caller's worker runs calls while it waits. `retry`:
            retries by cause; None for the default of calls.
    """
    if is_in_gang():
        yield
        return
    retry = config["retry"]
    with joblib_backend(caller_helps=config["caller_helps"], retry=None if retry is None else Retry(**retry)):
        yield
