# /// script
# requires-python = ">=3.10"
# dependencies = ["joblib>=1.5", "numpy", "scikit-learn"]
# ///
"""What `cargo xtask bench python` measures with each of joblib's backends and two workers.

The code does not depend on a pool: the payloads of `benches/python` and the peers of `xtask/bench`
run the same functions.
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from inspect import getsource
from subprocess import check_output
from time import perf_counter
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


def spin(loops: int) -> int:
    """Compute in Python."""
    total = 0
    for loop in range(loops):
        total += loop & 3
    return total


def busy(count: int) -> float:
    """Return the duration of `count` calls of 10 ms, as a multiple of the ideal duration.

    The ideal is the duration of the same work without a backend: shared by as many plain processes
    as there are workers, all running at the same time, since a processor is slower per core while
    its other cores compute. The speed of shared machines changes within seconds, so the ideal is
    the mean of a measurement before the calls and one after them.
    """
    began = perf_counter()
    spin(1_000_000)
    loops = int(1_000_000 * 0.01 / (perf_counter() - began))
    with Parallel(n_jobs=WORKERS) as parallel:
        parallel(delayed(spin)(loops) for _ in range(10 * WORKERS))
        before = ideal(count, loops)
        began = perf_counter()
        parallel(delayed(spin)(loops) for _ in range(count))
        took = perf_counter() - began
        return took / ((before + ideal(count, loops)) / 2)


def ideal(count: int, loops: int) -> float:
    """Return the seconds that plain processes take for `count` spins, shared without any loss."""
    share = count // WORKERS
    source = f"""
from time import perf_counter
{getsource(spin)}
began = perf_counter()
for _ in range({share}):
    spin({loops})
print(perf_counter() - began)
"""
    command = [sys.executable, "-c", source]
    with ThreadPoolExecutor(WORKERS) as threads:
        runs = [threads.submit(check_output, command) for _ in range(WORKERS)]
        return count / sum(share / float(run.result()) for run in runs)


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
