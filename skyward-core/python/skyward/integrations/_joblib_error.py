"""The error of joblib's backend, for code that cannot import joblib."""

from __future__ import annotations


class BackendError(RuntimeError):
    """joblib's backend of the pool cannot be used; the message says what to change."""
