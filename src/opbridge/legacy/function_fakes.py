"""The shapes and dtypes of an autograd.Function's results: from its ``forward`` on fake tensors, or from the user."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_map_only

from opbridge.catalog.declare.function_fakes import function_fake
from opbridge.errors import CaptureError, described_error
from opbridge.torch_graph import internals as torch_internals
from opbridge.torch_graph.sources import source_of_function

if TYPE_CHECKING:
    from opbridge.legacy.function_calls import FunctionCall

__all__ = ["fake_outputs"]


def fake_outputs(call: FunctionCall, inputs: Sequence[Any]) -> tuple[Any, tuple[str, ...]]:
    """What ``forward`` returns for fake inputs, and what there is to say about it.

    A size that depends on the contents of a tensor is a symbol without a value. A ``forward`` that can't run without
    contents runs on made-up ones, for the number of results, their ranks and dtypes; none of their sizes is taken.

    Raises:
        CaptureError: ``forward`` runs neither on fake tensors nor on made-up ones.
    """
    declared = function_fake(call.function)
    if declared is not None:
        args, kwargs = call.arguments.fill(inputs)
        return declared(*args, **kwargs), ()
    try:
        with torch_internals.forgetting_new_sizes(inputs):
            returned = call.run_forward(inputs)
    except Exception as error:
        return _unknown_sizes(call, inputs, error), (_why(call, error),)
    return _own_sizes(returned, inputs), ()


def _why(call: FunctionCall, error: Exception) -> str:
    return (
        f"forward needs the contents of its tensors ({described_error(error, 80)}), so every size of its results is "
        f"unknown while exporting: give them with opbridge.fake_for({call.function.__name__})"
    )


def _own_sizes(returned: Any, inputs: Sequence[Any]) -> Any:
    """The results, with a symbol of their own for every size that the inputs' sizes do not tell."""
    known = torch_internals.symbols_of(inputs)
    new: dict[str, Any] = {}

    def sized(tensor: torch.Tensor) -> torch.Tensor:
        sizes = [
            new[str(size)]
            if str(size) in new
            else new.setdefault(str(size), _new_size())
            if torch_internals.symbols_of([size]) - known
            else size
            for size in tensor.shape
        ]
        changed = any(size is not old for size, old in zip(sizes, tensor.shape, strict=True))
        return tensor.new_empty(sizes) if changed else tensor

    return tree_map_only(torch.Tensor, sized, returned)


def _new_size() -> Any:
    return torch.library.get_ctx().new_dynamic_size()


def _unknown_sizes(call: FunctionCall, inputs: Sequence[Any], error: Exception) -> Any:
    """Tensors of the results' ranks and dtypes, with a new symbol for every size."""
    failure: Exception = error
    for values in _made_up(inputs):
        try:
            with torch_internals.outside_fake_tensors():
                returned = call.run_forward(values)
        except Exception as refused:
            failure = refused
        else:
            return tree_map_only(torch.Tensor, functools.partial(_of_unknown_sizes, device=_device(inputs)), returned)
    name = call.function.__name__
    place = source_of_function(call._forward)
    raise CaptureError(
        f"The shapes that {call.display_name} returns can't be found: its forward{f' at {place}' if place else ''} "
        f"runs neither without the contents of its tensors ({described_error(error, 200)}) nor on made-up ones "
        f"({described_error(failure, 200)}).",
        fix=f"give its shapes: @opbridge.fake_for({name}) on a function of apply's arguments that returns empty "
        "tensors of the right shapes and dtypes.",
    ) from error


def _of_unknown_sizes(real: torch.Tensor, device: torch.device) -> torch.Tensor:
    return torch.empty([_new_size() for _ in real.shape], dtype=real.dtype, device=device)


def _device(inputs: Sequence[Any]) -> torch.device:
    return next((value.device for value in inputs if isinstance(value, torch.Tensor)), torch.device("cpu"))


def _made_up(inputs: Sequence[Any]) -> Iterator[list[Any]]:
    """Real tensors of the inputs' example sizes: ones, random numbers, zeros."""

    def real(value: Any, kind: str) -> Any:
        if not isinstance(value, torch.Tensor):
            return torch_internals.example_of(value)
        shape = [torch_internals.example_of(size) for size in value.shape]
        if kind == "random" and value.dtype.is_floating_point:
            return torch.rand(shape, dtype=value.dtype)
        return torch.zeros(shape, dtype=value.dtype) if kind == "zeros" else torch.ones(shape, dtype=value.dtype)

    for kind in ("ones", "random", "zeros"):
        with torch_internals.outside_fake_tensors(), torch.random.fork_rng(devices=[]):
            made = [real(value, kind) for value in inputs]
        yield made
