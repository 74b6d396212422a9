"""Samples from PyTorch's own operator database: the one place that reads ``torch.testing._internal``."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

NAMES = {"_cdist_forward": "cdist", "_euclidean_dist": "cdist"}
"""Where the database lists an operator under the name of the one that calls it."""


@dataclasses.dataclass(frozen=True)
class Call:
    """One call of a torch function; its tensors are the inputs of the model that is exported."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        return tuple(leaf for leaf in pytree.tree_leaves((self.args, self.kwargs)) if isinstance(leaf, torch.Tensor))

    @property
    def has_empty_tensor(self) -> bool:
        return any(tensor.numel() == 0 for tensor in self.tensors)

    def with_tensors(self, tensors: tuple[torch.Tensor, ...]) -> Call:
        """The same call of other tensors."""
        leaves, structure = pytree.tree_flatten((self.args, self.kwargs))
        given = iter(tensors)
        args, kwargs = pytree.tree_unflatten(
            [next(given) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves], structure
        )
        return Call(self.function, args, kwargs)

    def __call__(self) -> list[torch.Tensor]:
        found = self.function(*self.args, **self.kwargs)
        return [leaf for leaf in pytree.tree_leaves(found) if isinstance(leaf, torch.Tensor)]

    def widened(self) -> Call:
        """The same call in float64, for a reference that is more exact than what it judges."""
        return self.with_tensors(tuple(t.double() if t.is_floating_point() else t for t in self.tensors))


class Batch(torch.nn.Module):
    """Many calls as one model: exporting it once is many times faster than exporting each."""

    def __init__(self, calls: list[Call]) -> None:
        super().__init__()
        self.calls = calls

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = iter(tensors)
        results = []
        for call in self.calls:
            results += call.with_tensors(tuple(itertools.islice(given, len(call.tensors))))()
        return tuple(results)


@functools.cache
def _infos(name: str) -> tuple[Any, ...]:
    return tuple(info for info in op_db if info.name.split(".")[-1] == name)


def dtypes_of(name: str) -> list[torch.dtype]:
    """The element types that PyTorch's CPU kernels take, float32 first."""
    order = (
        torch.float32,
        torch.float64,
        torch.float16,
        torch.int64,
        torch.int32,
        torch.uint8,
        torch.int8,
        torch.bool,
    )
    supported = {dtype for info in _infos(name) for dtype in info.supported_dtypes("cpu")}
    return [dtype for dtype in order if dtype in supported]


@functools.cache
def calls_of(name: str, dtype: torch.dtype) -> tuple[Call, ...]:
    """Every sample of an operator ("cummax") in one element type, the same ones in every run."""
    return tuple(_calls(name, dtype))


def _calls(name: str, dtype: torch.dtype) -> Iterator[Call]:
    for info in _infos(name):
        torch.manual_seed(0)
        for sample in info.sample_inputs("cpu", dtype, requires_grad=False):
            args, kwargs = pytree.tree_map_only(
                torch.Tensor, lambda tensor: tensor.detach().clone(), ((sample.input, *sample.args), sample.kwargs)
            )
            yield Call(info.op, args, kwargs)
