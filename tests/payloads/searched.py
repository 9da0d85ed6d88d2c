"""Payloads that use joblib and scikit-learn as if there were no pool."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
import skyward as sky
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def rank_of(estimator: SVC, x: NDArray[np.float64], y: NDArray[np.int64]) -> dict[str, float]:
    """The score of an estimator, and who has computed it."""
    return {"score": estimator.score(x, y), "rank": sky.instance_info().rank}


def search() -> dict[str, Any]:
    """A small search, on all workers and on this one."""
    digits = load_digits(n_class=4)
    grid = GridSearchCV(
        SVC(),
        {"C": [0.1, 0.3, 1, 3, 10], "gamma": [1e-3, 1e-2]},
        cv=3,
        scoring=rank_of,
        refit=False,
        n_jobs=-1,
    )
    alone = clone(grid).set_params(n_jobs=1).fit(digits.data, digits.target)
    grid.fit(digits.data, digits.target)
    folds = [f"split{fold}_test_" for fold in range(3)]
    equal = all(
        (grid.cv_results_[f"{fold}score"] == alone.cv_results_[f"{fold}score"]).all() for fold in folds
    )
    return {
        "equal": bool(equal),
        "jobs": effective_n_jobs(-1),
        "ranks": sorted({int(rank) for fold in folds for rank in grid.cv_results_[f"{fold}rank"]}),
        "limits": [os.environ[name] for name in LIMITS],
    }


def die(worker: int) -> None:
    """End the process that runs this, unless it is the caller's."""
    if os.getpid() != worker:
        os.kill(os.getpid(), signal.SIGKILL)


def killed() -> str:
    """Have calls kill their workers: the caller lives."""
    try:
        with sky.integrations.joblib_backend(caller_helps=False):
            Parallel(n_jobs=-1)(delayed(die)(os.getpid()) for _ in range(2))
    except sky.WorkerLost as error:
        return str(error)
    return "nothing was lost"
