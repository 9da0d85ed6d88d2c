"""Tensors of torch: check that their elements can be read, and copy them.

Torch copies the elements. A subclass of `torch.Tensor` may have no memory of its own, so that its
address means nothing: what a tensor can do decides, not the name of its class.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from . import forms
from .advice import type_name


class TensorError(ValueError):
    """The elements of a tensor cannot be read."""


def host_copy(torch: Any, tensor: Any) -> Any:
    """Return the tensor's elements, contiguous and in the memory of this host.

    Raises:
        TensorError: the tensor has no elements of its own, or only a part of them, or more than its
            elements would be lost.
    """
    with _explained(tensor):
        plain = _plain(torch, _ready(torch, tensor))
        return plain.detach().cpu().resolve_conj().resolve_neg().contiguous()


def elements(torch: Any, host: Any) -> memoryview:
    """Return the bytes of a tensor in the memory of this host, copied by torch.

    Raises:
        TensorError: torch cannot copy them.
    """
    from .._core.memory import allocate

    size = host.numel() * host.element_size()
    if not size:
        return memoryview(b"")
    memory = allocate(size)
    with _explained(host):
        torch.frombuffer(memory, dtype=torch.uint8).copy_(host.reshape(-1).view(torch.uint8))
    return memory


@contextmanager
def _explained(tensor: Any) -> Iterator[None]:
    """Context manager: raise `TensorError` for what torch raises when it cannot copy a tensor."""
    try:
        yield
    except TensorError:
        raise
    except (RuntimeError, TypeError, ValueError, AttributeError) as error:
        text = str(error).partition("\n")[0]
        name = type_name(type(tensor))
        raise TensorError(f"torch cannot copy the elements of this {name} ({text}); send an ordinary tensor") from error


def check_memory(tensor: Any) -> None:
    """Check that a tensor has the memory in which its elements should be.

    Memory that torch does not show, as that of XLA's devices, is left to torch.

    Raises:
        TensorError: the memory was freed, as FSDP does between its steps, or there is none.
    """
    try:
        is_freed = _is_freed(tensor)
    except (RuntimeError, ValueError):
        return
    if is_freed:
        raise TensorError(
            "the memory of this tensor was freed, as FSDP does with parameters between its steps; gather it first, for "
            "example with `torch.distributed.checkpoint.state_dict.get_model_state_dict`"
        )


def _is_freed(tensor: Any) -> bool:
    if tensor.numel() == 0:
        return False
    storage = tensor.untyped_storage()
    last = tensor.storage_offset() + sum(
        (size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True)
    )
    return storage.nbytes() < (last + 1) * tensor.element_size() or not storage.data_ptr()


def check_pickled(torch: Any, tensor: Any) -> None:
    """Check that torch can pickle a tensor's elements; wrappers and sparse tensors do it their own way.

    Raises:
        TensorError: the memory of the tensor was freed.
    """
    has_memory = tensor.layout is torch.strided and not tensor.is_nested and tensor.device.type != "meta"
    if has_memory and not _is_wrapper(torch, tensor):
        check_memory(tensor)


def _ready(torch: Any, tensor: Any) -> Any:
    """Return the tensor itself, or the result that an asynchronous one waits for."""
    if hasattr(tensor, "full_tensor"):
        raise TensorError("only a part of a distributed tensor is on this rank; call `.full_tensor()` on every rank")
    if not _is_wrapper(torch, tensor):
        return tensor
    wait = getattr(type(tensor), "wait", None)
    ready = tensor.wait() if callable(wait) else None
    if not isinstance(ready, torch.Tensor) or _is_wrapper(torch, ready):
        raise TensorError(
            f"a {type_name(type(tensor))} wraps other data, and its own elements mean nothing; send the tensors that "
            "it is made of, or convert it to an ordinary one, for example with `.dequantize()` or `.to_dense()`"
        )
    return ready


def _is_wrapper(torch: Any, tensor: Any) -> bool:
    """Return whether a class handles torch's operations itself, and may have no elements."""
    return type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


def _plain(torch: Any, tensor: Any) -> Any:
    kind = type(tensor)
    if kind is not torch.Tensor and kind is not torch.nn.Parameter:
        _check_subclass(tensor)
        shape, dtype = tensor.shape, tensor.dtype
        tensor = tensor.as_subclass(torch.Tensor)
        if type(tensor) is not torch.Tensor or (tensor.shape, tensor.dtype) != (shape, dtype):
            raise TensorError(f"a {type_name(kind)} cannot be converted to an ordinary tensor; send its parts")
    if tensor.layout is not torch.strided:
        raise TensorError("a sparse or nested tensor cannot be sent; use `.to_dense()` or `.to_padded_tensor(…)`")
    if tensor.is_nested:
        raise TensorError("a nested tensor cannot be sent; use `.to_padded_tensor(…)`, or send `.unbind()`")
    if tensor.is_quantized:
        raise TensorError("a quantised tensor cannot be sent; use `.dequantize()`")
    if tensor.device.type == "meta":
        raise TensorError("a meta tensor has no elements")
    if any(name is not None for name in getattr(tensor, "names", ())):
        raise TensorError("the names of its dimensions would be lost; use `.rename(None)`, and send the names apart")
    check_memory(tensor)
    return tensor


def _check_subclass(tensor: Any) -> None:
    if lost := forms.lost_attributes(tensor):
        raise TensorError(
            f"only the elements would be sent, and {lost} would be lost; send a dict of `.as_subclass(torch.Tensor)` "
            "and of them"
        )
