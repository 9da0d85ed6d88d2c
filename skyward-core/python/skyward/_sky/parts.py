"""How the data of a world is divided into parts, and which part is this worker's.

By default each worker has a part of its own. If a model is divided over the devices of several
workers, the workers with the same row of the mesh compute on the same samples, so they share a
part.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from .cluster import count_ranks, instance_info, rank_of_task


def data_parts() -> tuple[int, int]:
    """Return the number of parts, and the index of this worker's part.

    A task that is no part of a broadcast has all of the data.

    Raises:
        ValueError: the mesh of Keras's distribution has no device of this worker, or gives workers
            data that overlap without being the same.
    """
    own = count_ranks(), rank_of_task()
    if own[0] == 1:
        return own
    info = instance_info()
    found = _mesh_of_task()
    if found is None or found[0].ndim < 2 or not spans_workers(found[0]):
        return own
    rows = rows_of(*found, info.total_workers)
    if not rows[info.global_worker_index]:
        raise ValueError(
            f"no device of worker {info.global_worker_index} is in the mesh of Keras's distribution, so it computes on "
            "no data: build the mesh from the devices of all workers, `keras.distribution.list_devices()`"
        )
    return parts_of(rows, info.global_worker_index)


def spans_workers(processes: Any) -> bool:
    """Return whether a mesh has devices of several workers.

    Args:
        processes: the process of each device, an array of the mesh's shape.
    """
    return len(set(processes.flat)) > 1


def parts_of(rows: list[frozenset[int]], worker: int) -> tuple[int, int]:
    """Return the number of parts, and the index of a worker's part.

    Args:
        rows: for each worker, the indices along the batch axis that its devices have.
        worker: the worker's index.

    Raises:
        ValueError: two workers share some of their rows but not all, or have unequal numbers of
            rows.
    """
    groups = sorted({group for group in rows if group}, key=sorted)
    for index, group in enumerate(groups):
        for other in groups[index + 1 :]:
            if group & other:
                one, two = rows.index(group), rows.index(other)
                raise ValueError(
                    f"the mesh gives worker {one} the rows {sorted(group)} of each batch and worker {two} the rows "
                    f"{sorted(other)}: they overlap without being the same, so the data cannot be divided among the "
                    "workers; choose a mesh in which the product of the axes after the batch axis divides the devices "
                    "of a worker, or is a multiple of them"
                )
    if len({len(group) for group in groups}) > 1:
        sizes = ", ".join(f"worker {index}: {len(group)}" for index, group in enumerate(rows))
        raise ValueError(
            f"the mesh gives the workers different numbers of rows of each batch ({sizes}), so the data cannot be "
            "divided into equal parts; choose a mesh whose rows divide evenly among the workers"
        )
    return len(groups), groups.index(rows[worker])


def rows_of(processes: Any, axis: int, workers: int) -> list[frozenset[int]]:
    """Return, for each process, the indices along one axis that its devices have.

    Args:
        processes: the process of each device, an array of the mesh's shape.
        axis: the axis that divides the batch.
        workers: the number of processes.
    """
    rows: dict[int, set[int]] = {}
    for index, process in _places(processes):
        rows.setdefault(process, set()).add(index[axis])
    return [frozenset(rows.get(process, ())) for process in range(workers)]


def _places(processes: Any) -> list[tuple[tuple[int, ...], int]]:
    import numpy

    return [(index, int(process)) for index, process in numpy.ndenumerate(processes)]


_remembered: tuple[Any, int] | None = None


def _mesh_of_task() -> tuple[Any, int] | None:
    """Return the mesh of Keras's distribution, also on threads other than the main thread.

    Keras keeps its distribution per thread. A thread that loads data has none, but must get the
    same part as the main thread, so it uses the mesh that the main thread had at its last look.
    """
    global _remembered
    found = keras_mesh()
    if threading.current_thread() is threading.main_thread():
        _remembered = found
    return found or _remembered


def keras_mesh() -> tuple[Any, int] | None:
    """Return the process of each device in this thread's Keras mesh, and the batch axis.

    None if there is no distribution, or its mesh has devices that JAX does not have.
    """
    keras = sys.modules.get("keras")
    jax = sys.modules.get("jax")
    if keras is None or jax is None or keras.backend.backend() != "jax":
        return None
    distribution = keras.distribution.distribution()
    mesh = getattr(distribution, "device_mesh", None)
    if mesh is None:
        return None
    import numpy

    process = {f"{device.platform}:{device.id}": device.process_index for device in jax.devices()}
    found = [process.get(str(name).lower()) for name in mesh.devices.flat]
    if None in found:
        return None
    axis = list(mesh.axis_names).index(getattr(distribution, "batch_dim_name", None) or mesh.axis_names[0])
    return numpy.array(found).reshape(mesh.devices.shape), axis
