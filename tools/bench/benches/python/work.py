# /// script
# requires-python = ">=3.10"
# dependencies = ["joblib>=1.5", "numpy", "scikit-learn"]
# ///
"""What `cargo xtask bench python` measures with each of joblib's backends and two workers.

The code does not depend on a pool: the payloads of `benches/python` and the programs in `peers` run
the same functions.
"""

from time import perf_counter, thread_time
from typing import Literal

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

WORKERS = 2
CANDIDATES = {"C": [0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0], "gamma": [3e-4, 1e-3, 3e-3]}


def same(value: int) -> int:
    """Do nothing; the call is measured."""
    return value


def tiny(count: int, batch_size: int | Literal["auto"] = "auto") -> float:
    """Return the seconds of `count` calls that do nothing, after a first round."""
    seconds = 0.0
    with Parallel(n_jobs=WORKERS, batch_size=batch_size) as parallel:
        for _ in range(2):
            began = perf_counter()
            results = parallel(delayed(same)(value) for value in range(count))
            seconds = perf_counter() - began
            if results != list(range(count)):
                raise AssertionError("the results are not those of the calls")
    return seconds


def one_by_one(count: int) -> float:
    """Return the same seconds without batches."""
    return tiny(count, 1)


def spin(loops: int) -> float:
    """Compute in Python, and return the seconds of processor time."""
    began = thread_time()
    total = 0
    for loop in range(loops):
        total += loop & 3
    return thread_time() - began


def busy(count: int) -> float:
    """Return the duration of `count` calls of 10 ms, as a multiple of the ideal duration.

    The ideal is the processor time of the calls themselves, shared by all workers without any loss.
    On shared hosts, and in the memory of another process, the same loop takes up to a fifth more or
    less from one second to the next. What the calls used is the only measure that does not include
    this.
    """
    spin(1_000_000)
    loops = int(1_000_000 * 0.01 / spin(1_000_000))
    with Parallel(n_jobs=WORKERS) as parallel:
        parallel(delayed(spin)(loops) for _ in range(10 * WORKERS))
        began = perf_counter()
        used: list[float] = parallel(delayed(spin)(loops) for _ in range(count))
        took = perf_counter() - began
        return took / (sum(used) / WORKERS)


def grid() -> float:
    """Return the seconds of a grid search with 105 fits."""
    digits = load_digits()
    GridSearchCV(SVC(), {"C": [1.0]}, n_jobs=WORKERS).fit(digits.data[:200], digits.target[:200])
    search = GridSearchCV(SVC(), CANDIDATES, n_jobs=WORKERS)
    began = perf_counter()
    search.fit(digits.data, digits.target)
    return perf_counter() - began


def total(array: NDArray[np.float64], part: int) -> float:
    """Read a part of a large array."""
    return float(array[part::16].sum())


def array(megabytes: int, seed: int) -> list[float]:
    """Return the seconds of 16 calls with a large array that is new to workers, and of 16 more."""
    values = np.random.default_rng(seed).random(megabytes * 125_000)
    seconds = []
    with Parallel(n_jobs=WORKERS) as parallel:
        parallel(delayed(same)(value) for value in range(10))
        for _ in range(2):
            began = perf_counter()
            parallel(delayed(total)(values, part) for part in range(16))
            seconds.append(perf_counter() - began)
    return seconds
