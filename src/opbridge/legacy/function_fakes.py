"""The shapes and dtypes of the results of an autograd.Function, from its ``forward`` or from the user."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from opbridge.capture.constants import UnknownContentsError
from opbridge.capture.python_draws import generator_states, kept_generators
from opbridge.catalog.declare.function_fakes import function_fake
from opbridge.errors import described_error
from opbridge.legacy.capture_state import shaping
from opbridge.torch_graph import internals as torch_internals
from opbridge.torch_graph.example_values import fake_with_contents
from opbridge.torch_graph.random_numbers import own_random_numbers
from opbridge.torch_graph.sources import source_of_function

if TYPE_CHECKING:
    from opbridge.legacy.function_calls import FunctionCall

__all__ = ["fake_outputs"]


def fake_outputs(call: FunctionCall, inputs: Sequence[Any]) -> tuple[Any, tuple[str, ...]]:
    """Return the results of ``forward`` for fake inputs, and remarks for the user.

    ``forward`` reads the contents of inputs that Python knows, such as ``torch.tensor([2, 3])``. A size that depends on
    other contents is a symbol without a value. A ``forward`` that can't run on fake tensors runs on arbitrary real ones
    to find the number, ranks and dtypes of the results; their sizes are not used.

    Raises:
        CaptureError: ``forward`` fails both on fake tensors and on real ones.
    """
    declared = function_fake(call.function)
    if declared is not None:
        args, kwargs = call.arguments.fill(inputs)
        return declared(*args, **kwargs), ()
    try:
        returned, others = _runs(call, inputs)
        own = _own_sizes(returned, inputs)
        failure = None
    except Exception as error:
        own, others, failure = None, [], error
    if call.contents and (failure is not None or own is not returned):
        known = [fake_with_contents(value, call.contents.get(i)) for i, value in enumerate(inputs)]
        with suppress(Exception):
            returned, others = _runs(call, known)
            own, failure = _own_sizes(returned, inputs), None
            call.reads = True
    if failure is not None:
        return _unknown_sizes(call, inputs, failure), (_why(call, failure),)
    drawn = _with_drawn_sizes(own, others)
    return drawn, () if drawn is own else (_DRAWN.format(call.function.__name__),)


def _runs(call: FunctionCall, inputs: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Return what ``forward`` returns, and what it returns when it runs again, if it draws numbers."""
    # A forward that returns something else during an export does so in all passes of the export.
    with (
        torch_internals.forgetting_new_sizes(inputs),
        kept_generators(),
        shaping(),
    ):
        before = generator_states()
        returned = call.run_forward(inputs)
        return returned, [call.run_forward(inputs) for _ in range(2)] if generator_states() != before else []


_DRAWN = (
    "forward draws the sizes of its results with Python or NumPy, so they are unknown during the export; declare them "
    "with opbridge.fake_for({})"
)


def _with_drawn_sizes(returned: Any, others: Sequence[Any]) -> Any:
    """Return the results with a new symbol for each size that is another one in other runs of ``forward``."""
    leaves, structure = tree_flatten(returned)
    again = [tree_flatten(other)[0] for other in others]
    changed = False
    for position, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            shapes = [leaf.shape, *(other[position].shape for other in again)]
            drawn = [isinstance(sizes[0], int) and len(set(map(str, sizes))) > 1 for sizes in zip(*shapes, strict=True)]
            if any(drawn):
                sizes = [_new_size() if new else size for new, size in zip(drawn, leaf.shape, strict=True)]
                leaves[position], changed = leaf.new_empty(sizes), True
    return tree_unflatten(leaves, structure) if changed else returned


def _why(call: FunctionCall, error: Exception) -> str:
    return (
        f"forward needs the contents of its tensors ({described_error(error, 80)}), so all sizes of its results are "
        f"unknown during the export; declare them with opbridge.fake_for({call.function.__name__})"
    )


def _own_sizes(returned: Any, inputs: Sequence[Any]) -> Any:
    """Return the results, with a new symbol for each size that does not follow from the sizes of the inputs."""
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
    """Return tensors with the ranks and dtypes of the results, and a new symbol for each size."""
    failure: Exception = error
    for values in _made_up(inputs, call.contents):
        try:
            with torch_internals.outside_fake_tensors(), shaping():
                returned = call.run_forward(values)
        except Exception as refused:
            failure = refused
        else:
            return tree_map_only(torch.Tensor, functools.partial(_of_unknown_sizes, device=_device(inputs)), returned)
    name = call.function.__name__
    place = source_of_function(call._forward)
    raise UnknownContentsError(
        f"The shapes of the results of {call.display_name} are unknown: its forward{f' at {place}' if place else ''} "
        f"fails on fake tensors ({described_error(error, 200)}) and on arbitrary real ones "
        f"({described_error(failure, 200)}).",
        fix=f"declare the shapes with @opbridge.fake_for({name}), on a function that takes the arguments of apply and "
        "returns empty tensors of the right shapes and dtypes.",
    ) from error


def _of_unknown_sizes(real: torch.Tensor, device: torch.device) -> torch.Tensor:
    return torch.empty([_new_size() for _ in real.shape], dtype=real.dtype, device=device)


def _device(inputs: Sequence[Any]) -> torch.device:
    return next((value.device for value in inputs if isinstance(value, torch.Tensor)), torch.device("cpu"))


def _made_up(inputs: Sequence[Any], contents: Mapping[int, torch.Tensor]) -> Iterator[list[Any]]:
    """Yield real tensors with the example sizes of the inputs, filled with ones, random numbers, and zeros.

    Args:
        inputs: The fake inputs.
        contents: The contents of those that are known, by position.
    """

    def real(value: Any, kind: str) -> Any:
        if not isinstance(value, torch.Tensor):
            return torch_internals.example_of(value)
        shape = [torch_internals.example_of(size) for size in value.shape]
        if kind == "random" and value.dtype.is_floating_point:
            return torch.rand(shape, dtype=value.dtype)
        return torch.zeros(shape, dtype=value.dtype) if kind == "zeros" else torch.ones(shape, dtype=value.dtype)

    for kind in ("ones", "random", "zeros"):
        with torch_internals.outside_fake_tensors(), own_random_numbers():
            made = [contents[i].clone() if i in contents else real(value, kind) for i, value in enumerate(inputs)]
        yield made
