# /// script
# requires-python = ">=3.10"
# dependencies = ["numpy", "scikit-learn"]
# ///
"""Searches the parameters of a support vector machine for scikit-learn's handwritten digits.

The code does not depend on a pool: with `plugins::sklearn()`, `n_jobs=-1` means all workers.
"""

import time
from typing import Any

from joblib import effective_n_jobs
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

CANDIDATES = {"C": [0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0], "gamma": [3e-4, 1e-3, 3e-3]}
FOLDS = 5


def search(jobs: int) -> dict[str, Any]:
    """Fit each candidate on each fold, then the best one on all digits.

    Args:
        jobs: fits that run at a time; -1 for one on each worker of the pool.

    Returns:
        A dict of `workers`, the number of workers that were used; the number of `fits`; the `best`
        parameters and their mean accuracy `best_score`; `scores`, the accuracy of each candidate
        per fold; and the duration in `seconds`.
    """
    digits = load_digits()
    grid = GridSearchCV(SVC(), CANDIDATES, cv=FOLDS, n_jobs=jobs)
    begin = time.perf_counter()
    grid.fit(digits.data, digits.target)
    seconds = time.perf_counter() - begin
    found = grid.cv_results_
    return {
        "workers": effective_n_jobs(jobs),
        "fits": len(found["params"]) * grid.n_splits_,
        "best": grid.best_params_,
        "best_score": float(grid.best_score_),
        "scores": [found[f"split{fold}_test_score"].tolist() for fold in range(grid.n_splits_)],
        "seconds": seconds,
    }
