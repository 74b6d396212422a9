"""The decorators that declare mappings of operators, and the dataclasses that they create.

A declaration is an :class:`OpSpec` attached to the decorated function. In a catalog file (part of
``opbridge.catalog.ops``, or passed with ``--ops``) it takes effect when a
:class:`~opbridge.catalog.declare.catalog.Catalog` collects the file; importing the file has no effect. In any other
module the declaration belongs to the user's level and takes effect at once, as users of ``@torch.library.custom_op``
expect of a decorator.
"""

from __future__ import annotations

import dataclasses
import inspect
import linecache
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from opbridge.errors import InputError
from opbridge.torch_graph import LOWEST_OPSET

__all__ = [
    "OpSpec",
    "Sample",
    "body_for",
    "decomposition",
    "fake_for",
    "kernel_translation",
    "rewrite",
    "specs_of",
    "translation",
]

Mapping_ = Literal["rewrite", "decompose", "translate", "function", "kernel", "fake"]
F = TypeVar("F", bound=Callable[..., Any])

OPS_FILE_PREFIX = "opbridge_user_ops_"
"""The prefix of the module names of operator files passed with ``--ops``."""

_ATTRIBUTE = "__opbridge_specs__"
_TARGET = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*(\.\w+)?")


@dataclasses.dataclass(frozen=True)
class Sample:
    """One set of inputs on which an operator is tested.

    Attributes:
        args: The positional arguments, at least one of them a tensor.
        kwargs: The keyword arguments.
        name: A word or two for the case that the sample covers, such as ``"broadcast"``.
    """

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    name: str = ""


@dataclasses.dataclass(frozen=True)
class OpSpec:
    """One mapping of one operator.

    Attributes:
        target: ``"ns::name"`` (all functional overloads) or ``"ns::name.overload"``; for a rewrite, the import path of
            a Python function, ``"package.module.function"``.
        rung: The mapping's rung on the ladder.
        function: The decorated function.
        opset: The lowest opset that has all nodes of the mapping.
        samples: A function that returns test inputs; None if PyTorch's operator database provides them.
        overrides: The reason for replacing torch's own mapping; empty if torch has none.
        source: ``file:line`` of the declaration.
    """

    target: str
    rung: Mapping_
    function: Callable[..., Any]
    opset: int = LOWEST_OPSET
    samples: Callable[[], Sequence[Sample]] | None = None
    overrides: str = ""
    source: str = ""

    @property
    def is_translation(self) -> bool:
        """Whether the function writes ONNX nodes."""
        return self.rung in ("translate", "kernel")

    @property
    def summary(self) -> str:
        """The first line of the function's docstring that is not a schema, with code in single backticks."""
        lines = [line.strip() for line in (self.function.__doc__ or "").replace("``", "`").splitlines()]
        return next((line for line in lines if line and "->" not in line), "")


_declared: list[OpSpec] = []


def _source(function: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else ""


def declare(spec: OpSpec) -> None:
    """Attach ``spec`` to its function and, outside of catalog files, add it to the user's level."""
    specs = getattr(spec.function, _ATTRIBUTE, ())
    setattr(spec.function, _ATTRIBUTE, (*specs, spec))
    if not (getattr(spec.function, "__module__", None) or "").startswith(("opbridge.catalog.ops.", OPS_FILE_PREFIX)):
        _declared.append(spec)


def replaces(target: str, later: str, earlier: str) -> bool:
    """Whether the declaration at ``later`` repeats the one at ``earlier``, because a file or notebook cell was rerun.

    Args:
        target: The target of both declarations.
        later: ``file:line`` of the later declaration.
        earlier: ``file:line`` of the earlier declaration.
    """
    file, _, line = earlier.rpartition(":")
    if later == earlier:
        return True
    if later.rpartition(":")[0] != file:
        # Notebook cells have the names of nonexistent files, and a new name after each edit.
        return not Path(file).exists() and not Path(later.rpartition(":")[0]).exists()
    linecache.checkcache(file)
    return target not in linecache.getline(file, int(line))


def declared_specs() -> tuple[OpSpec, ...]:
    """The user's declarations so far; a repeated declaration, such as in a reloaded file, replaces the older one."""
    latest: list[OpSpec] = []
    for spec in _declared:
        latest = [
            other
            for other in latest
            if (other.target, other.rung) != (spec.target, spec.rung)
            or not replaces(spec.target, spec.source, other.source)
        ]
        latest.append(spec)
    return tuple(latest)


def specs_of(function: Callable[..., Any]) -> tuple[OpSpec, ...]:
    """The declarations attached to ``function``."""
    return tuple(getattr(function, _ATTRIBUTE, ()))


def _check_target(target: str, decorator: str) -> None:
    if not _TARGET.fullmatch(target):
        raise InputError(
            f"@{decorator}({target!r}): a target has the form 'namespace::name' or 'namespace::name.overload'.",
            fix=f"write, for example, @{decorator}('aten::cummax').",
        )


def decomposition(
    target: str, *, samples: Callable[[], Sequence[Sample]] | None = None, overrides: str = ""
) -> Callable[[F], F]:
    """Define a torch operator by other torch operators.

    The decorated function has the operator's parameters. It is traced when the captured graph is decomposed, so it may
    branch on Python values, dtypes and ranks, but not on the contents of a tensor. It may return ``NotImplemented`` for
    calls that it does not handle; these keep their other mapping::

        @opbridge.decomposition("aten::hypot")
        def hypot(self: Tensor, other: Tensor) -> Tensor:
            large = torch.maximum(self.abs(), other.abs()).clamp_min(torch.finfo(self.dtype).tiny)
            return large * torch.sqrt((self / large) ** 2 + (other / large) ** 2)

    Args:
        target: The operator: ``"aten::hypot"`` for all functional overloads, ``"aten::hypot.default"`` for one.
        samples: A function that returns test inputs, for operators that are not in PyTorch's operator database.
        overrides: The reason for replacing torch's own mapping, if torch has one.

    Raises:
        InputError: ``target`` is malformed.
    """
    _check_target(target, "decomposition")

    def decorate(function: F) -> F:
        declare(OpSpec(target, "decompose", function, LOWEST_OPSET, samples, overrides, _source(function)))
        return function

    return decorate


def translation(
    target: str,
    *,
    opset: int = LOWEST_OPSET,
    samples: Callable[[], Sequence[Sample]] | None = None,
    overrides: str = "",
) -> Callable[[F], F]:
    """Define a torch operator by ONNX nodes.

    The decorated function has the form that ``torch.onnx.export(custom_translation_table=...)`` expects: it receives an
    ONNX value for each tensor and Python values for the other arguments, creates nodes with an onnxscript opset or with
    :func:`opbridge.custom_node`, and returns a value, or a tuple of values for several outputs. Arguments that the
    model leaves at their defaults are not passed, so declare the operator's defaults::

        from onnxscript import opset18 as op

        @opbridge.translation("mylib::scaled")
        def scaled(x, factor=1.0):
            return op.Mul(x, op.CastLike(op.Constant(value_float=factor), x))

    Args:
        target: The operator: ``"mylib::scaled"`` for all functional overloads, ``"mylib::scaled.default"`` for one.
        opset: The lowest opset that has all of these nodes; the export uses at least this opset.
        samples: A function that returns test inputs, for operators that are not in PyTorch's operator database.
        overrides: The reason for replacing torch's own mapping, if torch has one.

    Raises:
        InputError: ``target`` is malformed.
    """
    _check_target(target, "translation")

    def decorate(function: F) -> F:
        declare(OpSpec(target, "translate", function, opset, samples, overrides, _source(function)))
        return function

    return decorate


def kernel_translation(target: str) -> Callable[[F], F]:
    """Define an operator of the catalog, which has another mapping too, by custom nodes with kernels and bodies.

    It is used in place of the other mapping if the user exports with ``kernels="always"``, and by default for tensors
    of at least 4096 elements in ONNX Runtime. The kernel must be at least twice as fast as the nodes of the other
    mapping, by ``benchmarks/catalog.py``.
    """
    _check_target(target, "kernel_translation")

    def decorate(function: F) -> F:
        declare(OpSpec(target, "kernel", function, LOWEST_OPSET, None, "", _source(function)))
        return function

    return decorate


def rewrite(target: str) -> Callable[[F], F]:
    """Replace a Python function or a torch API during the capture of a model.

    The decorated function receives the original function as its first argument, followed by the arguments of the call.
    It may return ``NotImplemented`` for calls that it does not handle; the original function is then called::

        @opbridge.rewrite("mylib.boxes.sorted_boxes")
        def sorted_boxes(original, boxes):
            return boxes[boxes[:, 0].argsort()]

    Args:
        target: The import path of the function: ``"torchvision.ops.boxes.batched_nms"``, ``"torch.roll"`` or
            ``"torch.Tensor.roll"``.

    Raises:
        InputError: ``target`` is not an import path.
    """
    if "::" in target or "." not in target:
        raise InputError(
            f"@rewrite({target!r}): the target of a rewrite is the import path of a Python function.",
            fix="write, for example, @rewrite('torchvision.ops.boxes.batched_nms'); "
            "for a torch operator use @decomposition.",
        )

    def decorate(function: F) -> F:
        declare(OpSpec(target, "rewrite", function, LOWEST_OPSET, None, "", _source(function)))
        return function

    return decorate


def fake_for(target: str | type) -> Callable[[F], F]:
    """Define the shape function of an existing torch operator, so that the operator can be captured (link 1).

    The decorated function receives the operator's arguments as fake tensors and returns fake tensors of the result's
    shape and dtype. A size that depends on data is created with ``torch.library.get_ctx().new_dynamic_size()``::

        @opbridge.fake_for("mmcv::roi_align_rotated")
        def _(input, rois, pooled_height, pooled_width, *options):
            return input.new_empty(rois.shape[0], input.shape[1], pooled_height, pooled_width)

    Args:
        target: An operator registered with torch from C++ or Python, such as ``"mmcv::roi_align_rotated"``; or a
            ``torch.autograd.Function`` with a ``symbolic``, whose shape function takes the arguments of ``apply``.

    Raises:
        InputError: The operator does not exist or already has a shape function, or the class is not an
            ``autograd.Function``.
    """
    if isinstance(target, type):
        return _fake_for_function(target)
    _check_target(target, "fake_for")

    def decorate(function: F) -> F:
        from opbridge.catalog.declare.operator import register_fake

        register_fake(target, function)
        declare(OpSpec(target, "fake", function, LOWEST_OPSET, None, "", _source(function)))
        return function

    return decorate


def _fake_for_function(target: type) -> Callable[[F], F]:
    import torch

    from opbridge.catalog.declare.function_fakes import register_function_fake

    if not issubclass(target, torch.autograd.Function):
        raise InputError(
            f"fake_for({target.__name__}): the class is not a torch.autograd.Function.",
            fix="pass the name of an operator, 'namespace::name', or a subclass of torch.autograd.Function.",
        )

    def decorate(function: F) -> F:
        register_function_fake(target, function)
        return function

    return decorate


def body_for(target: str) -> Callable[[F], F]:
    """Define the ONNX function body of a custom node, so that the node runs in any engine (rung ``function``).

    The decorated function is torch code. Its parameters are the node's inputs, followed by its attributes by name::

        @opbridge.body_for("acme::Scale")
        def scale(x, factor):
            return x * factor

    Args:
        target: The node's operator, ``"domain::Op"``. A torch operator with this name is exported as such a node.

    Raises:
        InputError: ``target`` is malformed.
    """
    _check_target(target, "body_for")

    def decorate(function: F) -> F:
        declare(OpSpec(target, "function", function, LOWEST_OPSET, None, "", _source(function)))
        return function

    return decorate
