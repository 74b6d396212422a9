"""What an operator file declares: the decorators, and the values they make.

A declaration is an :class:`OpSpec` attached to the decorated function. In a file of the catalog
(``opbridge.catalog.ops``, or a directory given with ``--ops``) it takes effect when a
:class:`~opbridge.catalog.declare.catalog.Catalog` collects the file; importing
the file alone changes nothing. In any other module it belongs to the user's level and takes effect at once, because
that is what ``@torch.library.custom_op`` users expect of a decorator.
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

__all__ = ["OpSpec", "Sample", "body_for", "decomposition", "fake_for", "rewrite", "specs_of", "translation"]

Mapping_ = Literal["rewrite", "decompose", "translate", "function", "fake"]
F = TypeVar("F", bound=Callable[..., Any])

OPS_FILE_PREFIX = "opbridge_user_ops_"
"""How the module of an operator file given with ``--ops`` is called."""

_ATTRIBUTE = "__opbridge_specs__"
_TARGET = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*(\.\w+)?")


@dataclasses.dataclass(frozen=True)
class Sample:
    """One input on which an operator is checked.

    Attributes:
        args: Positional arguments, tensors among them.
        kwargs: Keyword arguments.
        name: What makes this sample worth having, in a word or two.
    """

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    name: str = ""


@dataclasses.dataclass(frozen=True)
class OpSpec:
    """One mapping of one operator.

    Attributes:
        target: ``"ns::name"`` (all its functional overloads) or ``"ns::name.overload"``; for a rewrite, the import path
            of the Python function, ``"package.module.function"``.
        rung: Which rung of the ladder the mapping is.
        function: What the author wrote.
        opset: The lowest version of the standard ONNX domain that the mapping's nodes need.
        samples: A function that returns the samples to check it on; None where PyTorch's operator database has them.
        overrides: Why the mapping replaces one that torch already has; empty where torch has none.
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
    def summary(self) -> str:
        """The first line of the function's docstring that is not its schema."""
        lines = [line.strip() for line in (self.function.__doc__ or "").splitlines()]
        return next((line for line in lines if line and "->" not in line), "")


_declared: list[OpSpec] = []


def _source(function: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else ""


def declare(spec: OpSpec) -> None:
    """Attach ``spec`` to its function and, outside catalog files, put it in force at the user's level."""
    specs = getattr(spec.function, _ATTRIBUTE, ())
    setattr(spec.function, _ATTRIBUTE, (*specs, spec))
    if not (getattr(spec.function, "__module__", None) or "").startswith(("opbridge.catalog.ops.", OPS_FILE_PREFIX)):
        _declared.append(spec)


def replaces(target: str, later: str, earlier: str) -> bool:
    """Whether the declaration of ``target`` at ``later`` is the one at ``earlier`` made again: a file or cell rerun.

    Args:
        target: What both declare.
        later: ``file:line``.
        earlier: ``file:line``.
    """
    file, _, line = earlier.rpartition(":")
    if later == earlier:
        return True
    if later.rpartition(":")[0] != file:
        # The cells of a notebook have names of files that do not exist, another after each edit.
        return not Path(file).exists() and not Path(later.rpartition(":")[0]).exists()
    linecache.checkcache(file)
    return target not in linecache.getline(file, int(line))


def declared_specs() -> tuple[OpSpec, ...]:
    """The user's declarations so far. One made again from the same place (a reloaded file) replaces the older."""
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
            f"@{decorator}({target!r}): a target is written 'namespace::name' or 'namespace::name.overload'.",
            fix=f"write for example @{decorator}('aten::cummax').",
        )


def decomposition(
    target: str, *, samples: Callable[[], Sequence[Sample]] | None = None, overrides: str = ""
) -> Callable[[F], F]:
    """Map a torch operator to other torch operators.

    The decorated function takes the operator's own arguments and is traced while the graph is decomposed, so it may
    branch on Python values, dtypes and ranks, but not on the contents of a tensor.

    Args:
        target: ``"aten::hypot"`` or ``"aten::hypot.default"``.
        samples: Returns inputs to check it on, where PyTorch's operator database has none.
        overrides: If torch has a mapping of its own: why it is replaced.
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
    """Map a torch operator to ONNX nodes.

    The decorated function is what ``torch.onnx.export(custom_translation_table=...)`` takes: it gets an ONNX value per
    tensor and Python values for the rest, builds nodes with an onnxscript opset (``from onnxscript import opset18 as
    op``) or :func:`opbridge.custom_node`, and returns a value, or a tuple for several outputs. Arguments that the model
    leaves at their defaults are not passed, so give them the operator's defaults.

    Args:
        target: ``"torchvision::deform_conv2d"``.
        opset: The lowest opset whose nodes it uses; the export is raised to it.
        samples: Returns inputs to check it on, where PyTorch's operator database has none.
        overrides: If torch has a mapping of its own: why it is replaced.
    """
    _check_target(target, "translation")

    def decorate(function: F) -> F:
        declare(OpSpec(target, "translate", function, opset, samples, overrides, _source(function)))
        return function

    return decorate


def rewrite(target: str) -> Callable[[F], F]:
    """Replace a Python function or a torch API while the model is captured, and only then.

    The decorated function gets the original as its first argument, then the call's own arguments. It may return
    ``NotImplemented``: the call is then the original's, and the rewrite was not taken.

    Args:
        target: The import path: ``"torchvision.ops.boxes.batched_nms"``, ``"torch.roll"``, ``"torch.Tensor.roll"``.
    """
    if "::" in target or "." not in target:
        raise InputError(
            f"@rewrite({target!r}): a rewrite names a Python function by its import path.",
            fix="write for example @rewrite('torchvision.ops.boxes.batched_nms'); "
            "for a torch operator use @decomposition.",
        )

    def decorate(function: F) -> F:
        declare(OpSpec(target, "rewrite", function, LOWEST_OPSET, None, "", _source(function)))
        return function

    return decorate


def fake_for(target: str | type) -> Callable[[F], F]:
    """Give somebody else's torch operator its shape function, so that it can be captured (link 1).

    The decorated function takes the operator's arguments as fake tensors and returns fake tensors of the right shape
    and dtype; ``torch.library.get_ctx().new_dynamic_size()`` stands for a size that depends on the data.

    Args:
        target: ``"mmcv::roi_align_rotated"``: an operator registered with torch, from C++ or Python. Or a class, an
            ``autograd.Function`` with a ``symbolic``: its shape function takes the arguments of ``apply``.
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
            f"fake_for({target.__name__}): the class is no torch.autograd.Function.",
            fix="name an operator, 'namespace::name', or give a subclass of torch.autograd.Function.",
        )

    def decorate(function: F) -> F:
        register_function_fake(target, function)
        return function

    return decorate


def body_for(target: str) -> Callable[[F], F]:
    """Give a custom node its ONNX function body, so that it runs in any engine (rung ``function``).

    The decorated function is torch code over the node's inputs, then its attributes by name.

    Args:
        target: ``"domain::Op"`` of the node; a torch operator of that name is kept as such a node.
    """
    _check_target(target, "body_for")

    def decorate(function: F) -> F:
        declare(OpSpec(target, "function", function, LOWEST_OPSET, None, "", _source(function)))
        return function

    return decorate
