"""Represents calls of torch functions as models: their tensors are the inputs, all other arguments are constant."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

__all__ = ["Batch", "Call", "Constant"]

_ABBREVIATIONS = {
    "bfloat": "bf",
    "complex": "c",
    "float": "f",
    "uint": "u",
    "int": "i",
}


@dataclasses.dataclass(frozen=True)
class Constant:
    """A tensor argument that is not an input of the model, because the number of results depends on its value."""

    tensor: torch.Tensor


@dataclasses.dataclass(frozen=True)
class Call:
    """One call of a torch function; its tensors are the inputs of the model that is exported.

    Attributes:
        function: The torch function.
        args: Positional arguments; they may contain tensors and lists of tensors.
        kwargs: Keyword arguments.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """The tensors among the arguments, in order."""
        return tuple(leaf for leaf in pytree.tree_leaves((self.args, self.kwargs)) if isinstance(leaf, torch.Tensor))

    @property
    def has_empty_tensor(self) -> bool:
        """Whether a tensor has no elements."""
        return any(tensor.numel() == 0 for tensor in self.tensors)

    def with_tensors(self, tensors: Sequence[torch.Tensor]) -> Call:
        """The same call with other tensors."""
        leaves, structure = pytree.tree_flatten((self.args, self.kwargs))
        given = iter(tensors)
        args, kwargs = pytree.tree_unflatten(
            [next(given) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves], structure
        )
        return Call(self.function, args, kwargs)

    def __call__(self) -> list[torch.Tensor]:
        """The results, flattened; a number (from ``item``, ``allclose``) is wrapped in a tensor."""
        args, kwargs = pytree.tree_map_only(Constant, lambda constant: constant.tensor, (self.args, self.kwargs))
        leaves = pytree.tree_leaves(self.function(*args, **kwargs))
        return [_wrapped(leaf) for leaf in leaves if leaf is not None]

    def runs(self) -> bool:
        """Whether eager PyTorch accepts the call with dense tensors that do not share memory."""
        try:
            self.results_count()
        except Exception:  # PyTorch raises various types for inputs that it rejects.
            return False
        return True

    def results_count(self) -> int:
        """The number of results. The call's own tensors are not changed."""
        return len(self.with_tensors([tensor.clone() for tensor in self.tensors])())

    def widened(self) -> Call:
        """The same call in float64 or complex128, used as a more exact reference."""
        kwargs = {key: _wider(value) if isinstance(value, torch.dtype) else value for key, value in self.kwargs.items()}
        tensors = [tensor.to(_wider(tensor.dtype)) for tensor in self.tensors]
        return Call(self.function, self.args, kwargs).with_tensors(tensors)

    def __str__(self) -> str:
        parts = [_described(value) for value in self.args]
        parts += [f"{key}={_described(value)}" for key, value in self.kwargs.items()]
        return f"({', '.join(parts)})"


def _wider(dtype: torch.dtype) -> torch.dtype:
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else dtype


def _wrapped(leaf: Any) -> torch.Tensor:
    if isinstance(leaf, torch.Tensor):
        return leaf
    if isinstance(leaf, bool | torch.SymBool):
        return torch.scalar_tensor(leaf, dtype=torch.bool)
    if isinstance(leaf, int | torch.SymInt):
        return torch.scalar_tensor(leaf, dtype=torch.int64)
    if isinstance(leaf, torch.dtype):
        return torch.empty(0, dtype=leaf)
    return torch.scalar_tensor(leaf, dtype=torch.complex64 if isinstance(leaf, complex) else torch.float32)


def _described(value: Any) -> str:
    """A tensor as its type and shape, ``f32[2, 3]``; any other value as its shortened ``repr``."""
    if isinstance(value, torch.Tensor):
        name = str(value.dtype).removeprefix("torch.")
        short = next((name.replace(long, brief) for long, brief in _ABBREVIATIONS.items() if long in name), name)
        return f"{short}{list(value.shape)}"
    if isinstance(value, Constant):
        return f"constant {value.tensor.tolist()}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_described, value))}]"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


class Batch(torch.nn.Module):
    """Many calls as one model, which is exported many times faster than each call on its own."""

    def __init__(self, calls: Sequence[Call]) -> None:
        super().__init__()
        self.calls = calls

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The results of all calls, in order."""
        given = iter(tensors)
        results: list[torch.Tensor] = []
        for call in self.calls:
            results += call.with_tensors(tuple(itertools.islice(given, len(call.tensors))))()
        return tuple(results)
