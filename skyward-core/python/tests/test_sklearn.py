"""scikit-learn on the workers of a pool: the results are the same as without a pool."""

from __future__ import annotations

import pytest

from .conftest import Node
from .pool import Pool

pytestmark = pytest.mark.frameworks

PAYLOAD = """
import inspect
import warnings

warnings.simplefilter("ignore")

import numpy as np
import skyward as sky
from joblib import parallel_config
from sklearn.base import clone
from sklearn.datasets import load_digits, make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import all_estimators

def main(what, **more):
    return globals()["do_" + what](**more)

def scores(search):
    return {name: list(map(float, value)) for name, value in search.cv_results_.items() if "test_score" in name}

def do_grid():
    digits = load_digits(n_class=4)
    x, y = digits.data[:200], digits.target[:200]
    search = GridSearchCV(SVC(), {"C": [0.1, 1, 10], "gamma": [1e-3, 1e-2]}, cv=3)
    alone = clone(search).fit(x, y)
    with sky.integrations.sklearn_backend():
        found = clone(search).set_params(n_jobs=-1).fit(x, y)
        unset = cross_val_score(SVC(), x, y, cv=3)
    assert scores(alone) == scores(found), (scores(alone), scores(found))
    assert found.best_params_ == alone.best_params_ and len(unset) == 3
    return found.best_score_ == alone.best_score_

def do_nested_search():
    x, y = make_classification(60, random_state=0)
    forest = RandomForestClassifier(4, random_state=0, n_jobs=-1)
    search = GridSearchCV(forest, {"max_depth": [1, 2]}, cv=2)
    alone = cross_val_score(clone(search), x, y, cv=2)
    with sky.integrations.sklearn_backend():
        found = cross_val_score(clone(search).set_params(n_jobs=-1), x, y, cv=2, n_jobs=-1)
    return list(alone) == list(found)

STEPS = [("one", LogisticRegression()), ("two", DecisionTreeClassifier(random_state=0))]
REGRESSORS = [("one", LinearRegression()), ("two", Ridge())]
MORE = {
    "BaggingClassifier": {"n_estimators": 3},
    "BaggingRegressor": {"n_estimators": 3},
    "ColumnTransformer": {"transformers": [("a", "passthrough", [0, 1]), ("b", "passthrough", [2])]},
    "DictionaryLearning": {"n_components": 2, "max_iter": 2},
    "ExtraTreesClassifier": {"n_estimators": 4},
    "ExtraTreesRegressor": {"n_estimators": 4},
    "FeatureUnion": {"transformer_list": [("a", "passthrough"), ("b", "passthrough")]},
    "GridSearchCV": {"estimator": SVC(), "param_grid": {"C": [1, 2]}, "cv": 2},
    "IsolationForest": {"n_estimators": 4},
    "LatentDirichletAllocation": {"n_components": 2, "max_iter": 2},
    "MiniBatchDictionaryLearning": {"n_components": 2, "max_iter": 2},
    "MiniBatchSparsePCA": {"n_components": 2, "max_iter": 2},
    "MultiOutputClassifier": {"estimator": LogisticRegression()},
    "MultiOutputRegressor": {"estimator": Ridge()},
    "Nystroem": {"n_components": 5},
    "OneVsOneClassifier": {"estimator": LogisticRegression()},
    "OneVsRestClassifier": {"estimator": LogisticRegression()},
    "OutputCodeClassifier": {"estimator": LogisticRegression()},
    "RFECV": {"estimator": LogisticRegression(), "cv": 2},
    "RandomForestClassifier": {"n_estimators": 4},
    "RandomForestRegressor": {"n_estimators": 4},
    "RandomTreesEmbedding": {"n_estimators": 4, "sparse_output": False},
    "RandomizedSearchCV": {"estimator": SVC(), "param_distributions": {"C": [1, 2]}, "n_iter": 2, "cv": 2},
    "SequentialFeatureSelector": {"estimator": LogisticRegression(), "n_features_to_select": 2, "cv": 2},
    "SparseCoder": {"dictionary": np.eye(4)},
    "SparsePCA": {"n_components": 2, "max_iter": 2},
    "SpectralClustering": {"n_clusters": 2},
    "StackingClassifier": {"estimators": STEPS, "cv": 2},
    "StackingRegressor": {"estimators": REGRESSORS, "cv": 2},
    "TSNE": {"perplexity": 5, "max_iter": 250, "method": "exact"},
    "TunedThresholdClassifierCV": {"estimator": LogisticRegression(), "cv": 2},
    "VotingClassifier": {"estimators": STEPS},
    "VotingRegressor": {"estimators": REGRESSORS},
    "RadiusNeighborsClassifier": {"radius": 100.0},
    "RadiusNeighborsRegressor": {"radius": 100.0},
}

def result(estimator, x, y):
    if hasattr(estimator, "fit_predict") and not hasattr(estimator, "predict"):
        return estimator.fit_predict(x)
    estimator.fit(x, y)
    for method in ("predict_proba", "decision_function", "predict", "transform"):
        if hasattr(estimator, method):
            return getattr(estimator, method)(x)
    found = [value for name, value in sorted(vars(estimator).items()) if name.endswith("_")]
    return next(value for value in found if isinstance(value, np.ndarray))

def dense(value):
    return value.toarray() if hasattr(value, "toarray") else np.asarray(value)

def do_estimators():
    x, y = make_classification(40, 4, random_state=0)
    x, outputs = np.abs(x), np.stack([y, 1 - y], axis=1)
    several = {"MultiOutputClassifier", "MultiOutputRegressor", "MultiTaskElasticNetCV", "MultiTaskLassoCV"}
    checked, different = [], []
    for name, kind in all_estimators():
        known = inspect.signature(kind).parameters
        if "n_jobs" not in known:
            continue
        estimator = kind(**MORE.get(name, {}))
        if "random_state" in known:
            estimator.set_params(random_state=0)
        if name == "DBSCAN":
            estimator.set_params(eps=1.0)
        target = outputs.astype(float) if name in several and "Classifier" not in name else outputs if name in several else y
        if name == "NearestNeighbors":
            def result_of(one):
                return one.fit(x).kneighbors(x)[0]
        else:
            def result_of(one):
                return result(one, x, target)
        if name == "LatentDirichletAllocation":
            # Divides its rows by the number of jobs, and each job draws the numbers for its part.
            with parallel_config(backend="loky", n_jobs=2):
                alone = dense(result_of(clone(estimator)))
        else:
            alone = dense(result_of(clone(estimator)))
        with sky.integrations.sklearn_backend():
            found = dense(result_of(clone(estimator).set_params(n_jobs=-1)))
        checked.append(name)
        if not np.array_equal(alone, found, equal_nan=alone.dtype.kind == "f"):
            different.append([name, float(np.max(np.abs(alone - found)))])
    return [checked, different]
"""


def test_a_grid_search_has_the_same_result_as_without_a_pool(node: Node) -> None:
    pool = Pool(node, 3, PAYLOAD)
    assert pool.call(what="grid")
    assert sum(pool.counts.values()) > 10


def test_a_search_within_a_search_within_a_forest(node: Node) -> None:
    pool = Pool(node, 2, PAYLOAD)
    assert pool.call(what="nested_search")


@pytest.mark.timeout(120)
def test_all_estimators_have_the_same_results_as_without_a_pool(node: Node) -> None:
    pool = Pool(node, 2, PAYLOAD)
    ok, value = pool.outcome(pool.start(0, what="estimators"), deadline=100)
    assert ok, value
    checked, different = value
    assert len(checked) >= 60
    assert different == []
