"""The states of random generators as a file of arrays: those of Python, NumPy and torch, and others."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def save(path: Path, others: Iterable[Any]) -> None:
    """Write the states into a file, an archive of arrays without pickled objects.

    Args:
        path: the file.
        others: the states of further generators, arrays of any shape.
    """
    import numpy as np

    version, numbers, normal = random.getstate()
    name, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    states: dict[str, Any] = {
        "python": np.array([version, *numbers], np.int64),
        # The one that is kept for the next draw; none is an empty array.
        "python_normal": np.array([] if normal is None else [normal], np.float64),
        "numpy_name": np.array(str(name)),
        "numpy": np.array(keys, np.uint32),
        "numpy_position": np.array([position, has_gauss], np.int64),
        "numpy_normal": np.array([gauss], np.float64),
    }
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        states["torch"] = torch.random.get_rng_state().numpy()
    states.update((f"other_{number}", array) for number, array in enumerate(others))
    np.savez(path, **states)


def restore(path: Path) -> list[Any]:
    """Set the states from a file; generators that it does not have stay as they are.

    Returns:
        the states of the further generators, arrays in their order.
    """
    import numpy as np

    with np.load(path, allow_pickle=False) as states:
        version, *numbers = (int(number) for number in states["python"])
        normal = states["python_normal"]
        random.setstate((version, tuple(numbers), float(normal[0]) if len(normal) else None))
        position, has_gauss = (int(number) for number in states["numpy_position"])
        name, gauss = str(states["numpy_name"]), float(states["numpy_normal"][0])
        np.random.set_state((name, states["numpy"], position, has_gauss, gauss))
        torch: Any = sys.modules.get("torch")
        if torch is not None and "torch" in states:
            torch.random.set_rng_state(torch.from_numpy(states["torch"].copy()))
        return [states[f"other_{number}"] for number in range(sum(name.startswith("other_") for name in states.files))]
