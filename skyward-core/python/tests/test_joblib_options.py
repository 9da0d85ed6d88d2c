"""The options of joblib's `Parallel`: each is served by the backend, or refused."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import skyward as sky

pytestmark = pytest.mark.frameworks


def run(**options: Any) -> list[int]:
    """Compute three absolute values with these options of `Parallel`."""
    from joblib import Parallel, delayed  # type: ignore[import-untyped,import-not-found,unused-ignore]

    with sky.integrations.joblib_backend():
        results: list[int] = Parallel(**{"n_jobs": 2, **options})(delayed(abs)(number) for number in (-1, 2, -3))
    return results


def test_each_option_of_joblib_is_served_or_refused_on_purpose() -> None:
    from joblib import Parallel, parallel_config

    from skyward.integrations import _joblib_backend

    known = {"self", "backend", "backend_kwargs", *_joblib_backend._OWN, *_joblib_backend._HINTS}
    assert set(inspect.signature(Parallel.__init__).parameters) <= known
    config = {"backend_params", "inner_max_num_threads"}
    assert set(inspect.signature(parallel_config.__init__).parameters) <= known | config


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_nbytes": None, "temp_folder": "/nowhere", "mmap_mode": "c", "verbose": 0},
        {"max_nbytes": "1M", "mmap_mode": None, "prefer": "processes", "batch_size": 2, "pre_dispatch": "all"},
        {"require": "sharedmem", "timeout": 60},
    ],
)
def test_options_without_an_effect_on_results_are_served(options: dict[str, Any]) -> None:
    assert run(**options) == [1, 2, 3]


@pytest.mark.parametrize(
    "options",
    [{"initializer": print}, {"initargs": (1,)}, {"idle_worker_timeout": 3}, {"env": {"A": "1"}}, {"luck": 1}],
)
def test_options_of_other_backends_are_refused_by_name(options: dict[str, Any]) -> None:
    # joblib 1.4 itself takes no options that it does not know.
    with pytest.raises((sky.integrations.BackendError, TypeError), match=next(iter(options))):
        run(**options)


@pytest.mark.parametrize("mode", ["r+", "w+"])
def test_calls_cannot_write_into_the_callers_arrays(mode: str) -> None:
    with pytest.raises(sky.integrations.BackendError, match="return what the calls write"):
        run(mmap_mode=mode)
