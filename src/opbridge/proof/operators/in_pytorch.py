"""The checks in PyTorch: opcheck, shapes, gradients, and the kernel against the Python function."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.autograd.gradcheck import GradcheckError

from opbridge.catalog.declare.operator import Operator, without_kernels
from opbridge.errors import first_line
from opbridge.proof.operators.outcome import Outcome, failed, not_applicable, passed
from opbridge.proof.operators.subjects import Case, describe_tensor, describe_tensors, error_and_place
from opbridge.proof.operators.verdict import judged
from opbridge.proof.verify.inputs import to_numpy
from opbridge.proof.verify.options import VerifyOptions
from opbridge.proof.verify.reference_captured import CapturedReference
from opbridge.proof.verify.verify import verify
from opbridge.torch_graph.random_numbers import own_random_numbers

__all__ = ["check_gradients", "check_kernel", "check_opcheck", "check_shapes"]

_MOST_ELEMENTS = 300
"""The maximum number of elements for gradcheck, which calls the operator twice per element."""


def check_opcheck(case: Case, operator: Operator) -> Outcome:
    """Run ``torch.library.opcheck``: schema, autograd registration, fake, and all of these under a tracer."""
    tensors = _requiring_gradients(case, operator) or case.tensors
    args, kwargs = case.arguments(tensors)
    namespace, _, name = operator.target.partition("::")
    overload = getattr(getattr(torch.ops, namespace), name).default
    found: dict[str, Any] = dict(torch.library.opcheck(overload, args, kwargs, raise_exception=False))
    wrong = {test: result for test, result in found.items() if isinstance(result, BaseException)}
    if wrong:
        return failed(
            "\n".join(f"{test}: {_opcheck_cause(result)}" for test, result in wrong.items()),
            log="\n\n".join(f"{test}: {result}" for test, result in wrong.items()),
        )
    return passed(f"{len(found)} tests")


def _opcheck_cause(error: BaseException) -> str:
    """The cause of an opcheck error; its own first line only names the failed test."""
    innermost = error
    while innermost.__cause__ is not None:
        innermost = innermost.__cause__
    return error_and_place(innermost)


def check_shapes(case: Case, operator: Operator) -> Outcome:
    """Compare the fake's shapes and dtypes with those of the Python function and of the kernel."""
    with torch.no_grad():
        real = case.call(operator.function)
        computed = case.call(operator)
    outputs = case.captured.program.graph_module.graph.output_node().args[0]
    fakes = [node.meta["val"] for node in outputs if isinstance(node, torch.fx.Node)]
    fakes = [fake for fake in fakes if isinstance(fake, torch.Tensor)]
    for name, results in (("Python function", real), ("kernel", computed)):
        if len(results) != len(fakes):
            return failed(f"the {name} returns {len(results)} tensors, but the fake {len(fakes)}")
        for position, (result, fake) in enumerate(zip(results, fakes, strict=True)):
            if not _agrees(result, fake):
                return failed(
                    f"output {position} of the {name} is {describe_tensor(result)}, but the fake returns "
                    f"{describe_tensor(fake)}\nfix: {_FIXES[name]}"
                )
    return passed(describe_tensors(list(real)))


_FIXES = {
    "Python function": "correct the shape function (its .fake), so that it matches what the Python function returns.",
    "kernel": "correct the kernel's shape function, the second argument of OPBRIDGE_OPERATOR.",
}


def _agrees(result: torch.Tensor, fake: Any) -> bool:
    return (
        result.dtype == fake.dtype
        and result.dim() == fake.dim()
        and all(not isinstance(fake, int) or fake == size for size, fake in zip(result.shape, fake.shape, strict=True))
    )


def check_kernel(case: Case, operator: Operator) -> Outcome:
    """Compare the kernel, called by PyTorch, with the Python function in float64, with the tolerance of ``verify``."""
    with torch.no_grad(), _counting_calls(operator) as calls:
        outputs = case.call(operator)
    if calls:
        types = ", ".join(dict.fromkeys(str(tensor.dtype).removeprefix("torch.") for tensor in case.tensors))
        return not_applicable(f"PyTorch calls the Python function here: the kernel does not take {types or 'this'}")
    arrays = [to_numpy(output) for output in outputs]
    session = _Recorded(dict(zip(case.captured.output_names, arrays, strict=True)))
    with without_kernels():
        return judged(
            [
                verify(
                    CapturedReference(case.captured),
                    session,
                    engine="the kernel",
                    options=VerifyOptions(inputs=[case.feeds]),
                )
            ]
        )


class _Recorded:
    """A session whose outputs are already known."""

    def __init__(self, outputs: Mapping[str, np.ndarray]) -> None:
        self._outputs = dict(outputs)

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return self._outputs


@contextlib.contextmanager
def _counting_calls(operator: Operator) -> Iterator[list[None]]:
    """Yields a list with an item for each call of the operator's Python function."""
    function, calls = operator.function, list[None]()

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(None)
        return function(*args, **kwargs)

    operator.function = counted
    try:
        yield calls
    finally:
        operator.function = function


def check_gradients(case: Case, operator: Operator) -> Outcome:
    """Run ``torch.autograd.gradcheck`` in float64: the Python function's gradient against finite differences."""
    tensors = case.tensors
    floating = [tensor for tensor in tensors if tensor.is_floating_point()]
    count = sum(tensor.numel() for tensor in floating)
    if not floating:
        return not_applicable("no input is a floating-point tensor")
    if count > _MOST_ELEMENTS:
        return not_applicable(f"{count} elements are too many for gradcheck: add a sample of at most {_MOST_ELEMENTS}")
    if count == 0 or not all(bool(tensor.isfinite().all()) for tensor in floating):
        return not_applicable("the inputs are empty" if count == 0 else "an input is not finite")
    inputs = _requiring_gradients(case, operator, torch.float64)
    if inputs is None:
        return not_applicable("no result depends differentiably on the inputs, in float64")

    def call(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(result for result in case.call(operator, inputs) if result.requires_grad)

    if torch.autograd.gradcheck(call, inputs, raise_exception=False):
        return passed("float64")
    # At a kink, finite differences mix both slopes, so the check is repeated at a nearby point.
    with own_random_numbers(seed=0), torch.no_grad():
        perturbed = tuple(t + 0.01 * torch.rand_like(t) if t.is_floating_point() else t for t in inputs)
    nearby = tuple(t.requires_grad_(t.is_floating_point()) for t in perturbed)
    try:
        torch.autograd.gradcheck(call, nearby)
    except GradcheckError as error:
        return failed(first_line(error), log=str(error))
    return passed("float64, close to the sample's values")


def _requiring_gradients(
    case: Case, operator: Operator, dtype: torch.dtype | None = None
) -> tuple[torch.Tensor, ...] | None:
    """The sample's tensors with floating-point ones requiring gradients; None if no result then requires a gradient.

    Args:
        case: The sample.
        operator: The operator.
        dtype: The dtype for floating-point tensors; None to keep their own.
    """

    def prepared(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point():
            return tensor
        return (tensor if dtype is None else tensor.to(dtype)).requires_grad_()

    tensors = tuple(prepared(tensor) for tensor in case.tensors)
    function: Callable[..., Any] = operator.function
    try:
        results: Sequence[torch.Tensor] = case.call(function, tensors)
    except Exception:  # The operator is not differentiable; it may call NumPy, for example.
        return None
    return tensors if any(result.requires_grad for result in results) else None
