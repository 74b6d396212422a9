"""Captures a model for the values of its example inputs, with internals of torch.

``torch._functorch.config.fake_tensor_propagate_real_tensors`` makes torch use these values, as
``torch.export.draft_export`` does, which also writes log files and changes the declared sizes.
``ShapeEnv.guard_or_defer_runtime_assert`` shows where the program depends on them.
``FakeTensorMode.fake_tensor_converter`` makes a fake tensor whose contents can be read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from opbridge.torch_graph import internals as torch_internals
from opbridge.torch_graph.random_numbers import own_random_numbers
from opbridge.torch_graph.sources import AssumedValue, SourceLine, frames_of_stack

__all__ = [
    "Frames",
    "assuming_values",
    "example_fakes",
    "fake_with_contents",
    "has_example_fake",
    "has_fake",
    "taking_branches",
]

Frames = tuple[SourceLine, ...]


@contextlib.contextmanager
def assuming_values(assumed: list[AssumedValue], without_fake: dict[str, Frames]) -> Iterator[None]:
    """Let Python use the values that tensors have for the example inputs during a capture.

    torch writes a check of each of them into the captured program. An operator without a shape function is run on the
    example inputs.

    Args:
        assumed: A list to which each use of such a value is appended.
        without_fake: A dict to which each operator without a shape function is added, with the stack of its first use.
    """
    from torch._functorch import config
    from torch._subclasses import fake_tensor
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    own, own_inference = ShapeEnv.guard_or_defer_runtime_assert, fake_tensor.inferred_fake_kernel_from_real_out
    prefix = "propagate_real_tensors: "

    @functools.wraps(own)  # Its cache, which is an attribute, is emptied.
    def noting(env: Any, condition: Any, message: str, *args: Any, **kwargs: Any) -> Any:
        if message.startswith(prefix):
            value = message.rpartition(" == ")[2]
            assumed.append(AssumedValue(str(condition), value, frames_of_stack()))
        return own(env, condition, message, *args, **kwargs)

    def inferring(mode: Any, op: Any, result: Any) -> Any:
        without_fake.setdefault(op.name().removesuffix(".default"), frames_of_stack())
        return own_inference(mode, op, result)

    ShapeEnv.guard_or_defer_runtime_assert = noting  # type: ignore[method-assign, assignment]
    fake_tensor.inferred_fake_kernel_from_real_out = inferring  # type: ignore[assignment]
    try:
        with config.patch(fake_tensor_propagate_real_tensors=True):  # type: ignore[attr-defined]
            yield
    finally:
        ShapeEnv.guard_or_defer_runtime_assert = own  # type: ignore[method-assign]
        fake_tensor.inferred_fake_kernel_from_real_out = own_inference


@contextlib.contextmanager
def taking_branches(assumed: list[AssumedValue]) -> Iterator[None]:
    """Let ``torch.cond`` and ``torch.while_loop`` run what the example inputs reach, as Python statements would.

    Args:
        assumed: The list that :func:`assuming_values` appends to.
    """

    def decided(condition: Any) -> bool:
        before = len(assumed)
        value = bool(condition)
        assumed[before:] = [dataclasses.replace(item, is_branch=True) for item in assumed[before:]]
        return value

    def cond(pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
        return (true_fn if decided(pred) else false_fn)(*operands)

    def while_loop(cond_fn: Any, body_fn: Any, carried_inputs: Any) -> Any:
        while decided(cond_fn(*carried_inputs)):
            carried_inputs = body_fn(*carried_inputs)
        return carried_inputs

    own = torch.cond, torch.while_loop
    torch.cond, torch.while_loop = cond, while_loop  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.cond, torch.while_loop = own  # type: ignore[assignment]


def fake_with_contents(fake: Any, contents: torch.Tensor | None) -> Any:
    """Return a fake tensor of the same capture with these contents; ``fake`` itself if they are None."""
    if contents is None:
        return fake
    mode = fake.fake_mode
    with torch_internals.outside_fake_tensors():
        own = contents.clone()
    return mode.fake_tensor_converter.from_real_tensor(mode, own, make_constant=True)


def has_fake(operator: torch._ops.OpOverload) -> bool:
    """Return whether torch can determine the shape and dtype of an operator's results without running it."""
    from torch._library.simple_registry import singleton

    keys = ("Meta", "CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
    name = operator.name()
    return bool(singleton.find(name).fake_impl.kernels) or any(
        torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in keys
    )


def has_example_fake(operator: torch._ops.OpOverload) -> bool:
    """Return whether an operator has no other shape function than that of :func:`example_fakes`."""
    from torch._library.simple_registry import singleton

    kernels = singleton.find(operator.name()).fake_impl.kernels
    return bool(kernels) and kernels[-1].source == _SOURCE


_SOURCE = "opbridge"


@contextlib.contextmanager
def example_fakes(targets: Iterable[str], *, unknown_sizes: bool = False) -> Iterator[None]:
    """Give operators that have no shape function one: the sizes of their results on random inputs of the same sizes.

    Args:
        targets: The operators: ``"mylib::blur"``.
        unknown_sizes: Whether the sizes of their results are unknown instead; the ranks are always those of the run.
    """
    from torch._library.simple_registry import singleton
    from torch._library.utils import Kernel

    with contextlib.ExitStack() as stack:
        for target in targets:
            namespace, _, rest = target.partition("::")
            name, _, overload = rest.partition(".")
            operator = getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")
            kernels = singleton.find(target).fake_impl.kernels
            kernel = Kernel(functools.partial(_result_of_a_run, operator, unknown_sizes), _SOURCE)
            kernels.append(kernel)
            stack.callback(kernels.remove, kernel)
        yield


def _result_of_a_run(operator: Any, unknown_sizes: bool, *args: Any, **kwargs: Any) -> Any:
    from torch._subclasses.fake_tensor import unset_fake_temporarily
    from torch.utils import _pytree

    def size(value: Any) -> int:
        if not isinstance(value, torch.SymInt):
            return int(value)
        hint: Any = value.node.hint if value.node.has_hint() else 2  # Any size, for one that depends on data.
        return int(hint)

    def concrete(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return torch.rand([size(length) for length in value.shape]).to(value.dtype)
        return size(value) if isinstance(value, torch.SymInt) else value

    with unset_fake_temporarily(), own_random_numbers(), torch.no_grad():
        real = operator(*_pytree.tree_map(concrete, args), **_pytree.tree_map(concrete, kwargs))

    def fake(tensor: torch.Tensor) -> torch.Tensor:
        shape = [torch.library.get_ctx().new_dynamic_size() if unknown_sizes else length for length in tensor.shape]
        return torch.empty(shape, dtype=tensor.dtype)

    return _pytree.tree_map_only(torch.Tensor, fake, real)
