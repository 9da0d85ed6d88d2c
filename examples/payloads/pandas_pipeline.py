# /// script
# requires-python = ">=3.10"
# dependencies = ["pandas", "scikit-learn"]
# ///
"""Compares classifiers on a table of tumours: pandas prepares it, scikit-learn fits on all workers."""

from typing import Any

import pandas as pd
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler


def table() -> pd.DataFrame:
    """Return the table, 569 rows of 31 columns, with two columns more: a ratio and a class of size."""
    frame = load_breast_cancer(as_frame=True).frame
    frame["roughness"] = frame["worst perimeter"] / frame["mean perimeter"]
    frame["size"] = pd.qcut(frame["mean area"], 4, labels=False)
    return frame


def compare(folds: int) -> dict[str, Any]:
    """Compare two classifiers by cross-validation, and test the better one.

    Args:
        folds: the fits of each classifier.

    Returns:
        A dict of `rows`; `benign`, the share of benign tumours by class of size; the mean `scores`
        by classifier; the `best` of them; and its `accuracy` on rows that no fit has seen.
    """
    frame = table()
    benign = frame.groupby("size")["target"].mean()
    x, y = frame.drop(columns="target"), frame["target"]
    x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.25, random_state=0, stratify=y)
    classifiers = {
        "forest": RandomForestClassifier(100, random_state=0),
        "logistic": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
    }
    scores = {
        name: float(cross_val_score(classifier, x_train, y_train, cv=folds, n_jobs=-1).mean())
        for name, classifier in classifiers.items()
    }
    best = max(scores, key=lambda name: scores[name])
    accuracy = float(classifiers[best].fit(x_train, y_train).score(x_test, y_test))
    return {
        "rows": len(frame),
        "benign": benign.tolist(),
        "scores": scores,
        "best": best,
        "accuracy": accuracy,
    }


if __name__ == "__main__":
    print(compare(5))
