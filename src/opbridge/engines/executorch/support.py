"""Whether the installed runtime has the kernels of the operators into which ``to_edge`` decomposes a call."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from opbridge.engines.base import Refusal
from opbridge.engines.executorch import native
from opbridge.torch_graph.internals import example_of

if TYPE_CHECKING:
    from torch.fx import Node

__all__ = ["CallSupport"]

_logger = logging.getLogger(__name__)


class CallSupport:
    """Answers for the installed runtime, cached per distinct question.

    Args:
        version: The version of ExecuTorch.
    """

    def __init__(self, version: str) -> None:
        self._version = version
        self._answers: dict[str, str | None] = {}

    def ask(self, node: Node) -> Refusal | None:
        """See :meth:`Engine.supports_call <opbridge.engines.roles.TakesTorchPrograms.supports_call>`."""
        arguments = pytree.tree_map(
            _example, (node.args, node.kwargs), is_leaf=lambda item: isinstance(item, torch.fx.Node)
        )
        key = f"{node.target} {pytree.tree_map(_described, arguments)}"
        if key not in self._answers:
            lacking = [leaf for leaf in _leaves(node.target, *arguments) if not _has_kernel(leaf)]
            self._answers[key] = self._reason(node.target, lacking) if lacking else None
        reason = self._answers[key]
        return None if reason is None else Refusal(node.name, _name(node.target), reason)

    def _reason(self, target: Any, lacking: list[Any]) -> str:
        names = ", ".join(dict.fromkeys(map(_name, lacking)))
        becomes = "" if lacking == [target] else f", which {_name(target)} becomes"
        return f"ExecuTorch {self._version} has no kernel for {names}{becomes}"


def _name(overload: Any) -> str:
    return str(overload.name()).removesuffix(".default")


def _example(value: Any) -> Any:
    """A meta tensor of the example's sizes for a node's value."""
    if isinstance(value, torch.fx.Node):
        value = value.meta.get("val")
    if isinstance(value, torch.Tensor):
        return torch.empty([example_of(size) for size in value.shape], dtype=value.dtype, device="meta")
    if isinstance(value, list | tuple):
        return type(value)(_example(item) for item in value)
    return example_of(value)


def _described(value: Any) -> str:
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)


def _leaves(target: Any, args: Any, kwargs: Any) -> Iterator[Any]:
    """The operators into which a call is decomposed; the call's own operator if it is kept or can't be traced."""
    table = native.decompositions()
    if target not in table:
        yield target
        return
    flat, spec = pytree.tree_flatten((args, kwargs))
    tensors = [item for item in flat if isinstance(item, torch.Tensor)]

    def call(*given: torch.Tensor) -> Any:
        rest = iter(given)
        filled = [next(rest) if isinstance(item, torch.Tensor) else item for item in flat]
        own_args, own_kwargs = pytree.tree_unflatten(filled, spec)
        return target(*own_args, **own_kwargs)

    try:
        with torch.no_grad():
            traced = make_fx(call, decomposition_table=table)(*tensors)
    except Exception as error:  # Operators raise all kinds of errors for meta tensors.
        _logger.debug("%s can't be traced alone: %s", target, error)
        yield target
        return
    for node in traced.graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload):
            yield node.target


def _has_kernel(overload: Any) -> bool:
    """Whether the runtime has the kernel of an operator."""
    kernels = native.kernels()
    name = str(overload.name())
    if name in kernels or name.removesuffix(".default") in kernels or name.startswith("prim"):
        return True
    if overload.is_view:
        # A view is replaced by the corresponding copy operator.
        packet = getattr(torch.ops.aten, f"{overload._schema.name.removeprefix('aten::')}_copy", None)
        variant = overload._overloadname
        copy = getattr(packet, variant if variant in packet.overloads() else "default", None) if packet else None
        if copy is not None:
            return native.out_variant(copy) in kernels
    return native.out_variant(overload) in kernels
