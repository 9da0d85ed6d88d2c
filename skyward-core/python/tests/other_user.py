"""Code that runs as another user of this host; only root can do that."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")

USER = (1 << 20) + random.randrange(1 << 20)
"""A user with no other processes."""


def start(command: Sequence[str], **environment: str) -> subprocess.Popen[bytes]:
    """Start a program as the other user."""
    user: dict[str, Any] = {"user": USER, "group": USER, "extra_groups": []}
    return subprocess.Popen(command, env={**os.environ, **environment}, start_new_session=True, **user)
