"""Tensors of torch: their own elements are sent, or nothing."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from skyward._calls import pickles

from .test_arrays import same
from .test_values import back, packed, refused

pytestmark = pytest.mark.frameworks


@pytest.fixture(scope="module")
def torch() -> Any:
    return importlib.import_module("torch")


def wrapper(torch: Any, name: str, **methods: Any) -> Any:
    """A class of tensors without memory of its own, which has the tensor `inner`."""

    def new(kind: Any, inner: Any) -> Any:
        made = torch.Tensor._make_wrapper_subclass(kind, inner.shape, dtype=inner.dtype)
        made.inner = inner
        return made

    def dispatch(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*(getattr(arg, "inner", arg) for arg in args), **(kwargs or {}))

    return type(name, (torch.Tensor,), {"__new__": new, "__torch_dispatch__": classmethod(dispatch), **methods})


def test_a_wrapper_is_refused_by_its_name(torch: Any) -> None:
    kind = wrapper(torch, "Wrapped")
    path, name = refused({"x": [kind(torch.ones(4096))]}, "wraps other data")
    assert (path, name.rpartition(".")[2]) == (".x[0]", "Wrapped")


def test_an_asynchronous_result_is_awaited(torch: Any) -> None:
    waited = []

    def wait(self: Any) -> Any:
        waited.append(1)
        return self.inner

    kind = wrapper(torch, "Pending", wait=wait)
    same(back(packed(kind(torch.arange(3)))), np.arange(3))
    assert waited
    kind = wrapper(torch, "Endless", wait=lambda self: self)
    refused(kind(torch.ones(3)), "wraps other data")


def test_results_of_functional_collectives_are_their_values(torch: Any) -> None:
    collectives = importlib.import_module("torch.distributed._functional_collectives")
    same(back(packed(collectives.AsyncCollectiveTensor(torch.arange(5.0)))), np.arange(5, dtype="f4"))


def test_masked_and_fake_tensors_are_refused(torch: Any) -> None:
    masked = importlib.import_module("torch.masked").masked_tensor
    with pytest.warns(UserWarning, match="prototype"):
        value = masked(torch.arange(3.0), torch.tensor([True, False, True]))
    refused([value], "wraps other data")
    fake = importlib.import_module("torch._subclasses.fake_tensor").FakeTensorMode()
    with fake:
        value = torch.ones(3)
    refused([value], "FakeTensor")
    refused([torch.ones(3, device="meta")], "meta")


def test_tensors_within_transforms_are_refused(torch: Any) -> None:
    def send(row: Any) -> Any:
        refused(row, "torch cannot copy")
        return row

    torch.func.vmap(send)(torch.ones(2, 3))


def test_freed_memory_is_refused(torch: Any) -> None:
    for freed in (torch.arange(1000.0), torch.nn.Parameter(torch.ones(1000))):
        view = freed.detach()[10:20]
        storage = freed.untyped_storage()
        storage.resize_(0)
        try:
            assert refused([freed], "was freed")[0] == "[0]"
            refused(view, "was freed")
            with pytest.raises(Exception, match="was freed"):
                pickles.dumps({"weights": freed})
        finally:
            # The report of a failure shows the tensors.
            storage.resize_(4000)
    assert pickles.loads(pickles.dumps(torch.arange(3))).tolist() == [0, 1, 2]
    empty = torch.empty(0, 3)
    assert back(packed(empty)).shape == (0, 3)
    assert pickles.loads(pickles.dumps(empty)).shape == (0, 3)


def test_memory_that_torch_does_not_show_is_copied_by_torch(torch: Any) -> None:
    """As on XLA's devices, whose tensors have no storage."""
    importlib.import_module("torch._lazy.ts_backend").init()
    same(back(packed([torch.arange(4.0).to("lazy")])[1:]), np.arange(4, dtype="f4"))
    same(back(packed(torch._efficientzerotensor(2))), np.zeros(2, "f4"))


def test_a_model_that_is_not_initialised_is_pickled_by_torch(torch: Any) -> None:
    sent = pickles.loads(pickles.dumps(torch.nn.LazyLinear(3)))
    assert sent(torch.ones(2, 5)).shape == (2, 3)


def test_what_a_subclass_has_beside_its_elements_is_not_lost(torch: Any) -> None:
    plain = type("Plain", (torch.Tensor,), {})
    value = torch.arange(3).as_subclass(plain)
    same(back(packed(value)), np.arange(3))
    value.unit = "m"
    refused(value, ".unit would be lost")
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    refused(nested, "NestedTensor wraps other data")
    refused(torch.nn.parameter.UninitializedParameter(), "send")


def test_every_layout_and_dtype_is_copied_by_torch(torch: Any) -> None:
    value = torch.arange(24, dtype=torch.float64).reshape(2, 3, 4)
    for view in (value, value.mT, value[:, 1], value[..., ::2], value.expand(5, 2, 3, 4), torch.tensor(1.5)):
        same(back(packed(view)), view.numpy().copy(order="C"))
    large = torch.arange(1 << 21, dtype=torch.int32)
    same(back(packed(large)), large.numpy())
    conjugated = torch.tensor([1 + 2j]).conj()
    same(back(packed(conjugated)), np.array([1 - 2j], "c8"))
    same(back(packed(torch.tensor([True, False]))), np.array([True, False]))
    assert packed(torch.ones(1, dtype=torch.float8_e5m2))[-1:] == b"\x3c"
