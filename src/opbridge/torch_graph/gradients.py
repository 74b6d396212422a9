"""Gradients during a capture.

Some models compute gradients in ``forward``: forces as gradients of an energy, ``torch.func.jacrev``. torch.export
records calls above autograd, where the operators that compute a gradient are not seen. So ``forward`` is first traced
by ``make_fx``, below autograd, and torch.export records the result. Both see the same fake tensors and the same
symbolic sizes, so that nothing is fixed that torch.export would not fix.
"""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing, make_fx
from torch.utils import _pytree as pytree

from opbridge.errors import causes

__all__ = ["misses_gradients", "needs_gradients", "tracing_gradients", "without_gradient_modes"]

_MESSAGES = re.compile(
    r"does not require grad|found a fake tensor in the exported program constant|functorch|"
    r"'Tensor' object has no attribute 'constant'"
)
_OF_DERIVATIVES = ("_unwrap_for_grad", "_make_dual")
"""Functions of ``torch._functorch.predispatch``, which ``torch.func`` calls in reverse and in forward mode."""


def needs_gradients(error: BaseException | None) -> bool:
    """Whether a capture failed, as far as the message tells, because ``forward`` computes gradients."""
    return error is not None and any(_MESSAGES.search(str(cause)) for cause in causes(error))


def misses_gradients(program: torch.export.ExportedProgram) -> bool:
    """Whether torch.export has recorded the beginning or end of a derivative, whose operators it does not see."""
    graphs = (module.graph for module in program.graph_module.modules() if isinstance(module, torch.fx.GraphModule))
    return any(getattr(node.target, "__name__", "") in _OF_DERIVATIVES for graph in graphs for node in graph.nodes)


@contextlib.contextmanager
def tracing_gradients(module: torch.nn.Module) -> Iterator[None]:
    """Trace ``module.forward`` below autograd when torch.export calls it, inside the block."""
    original = module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = pytree.tree_flatten((args, kwargs))
        places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        results: list[Any] = []

        def run(*tensors: torch.Tensor) -> list[Any]:
            given = [*leaves]
            for place, tensor in zip(places, tensors, strict=True):
                given[place] = tensor
            inner_args, inner_kwargs = pytree.tree_unflatten(given, structure)
            with torch.enable_grad():
                results.append(original(*inner_args, **inner_kwargs))
            return _detached(results[-1])

        with torch._C.DisableTorchFunction(), disable_proxy_modes_tracing():
            traced = make_fx(run)(*(leaves[place].detach() for place in places))
            traced.graph.eliminate_dead_code()
            traced.recompile()
        found = traced(*(leaves[place] for place in places))
        return pytree.tree_unflatten(found, pytree.tree_structure(results[-1]))

    forward.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]
    before = module.__dict__.get("forward")
    module.__dict__["forward"] = forward
    try:
        yield
    finally:
        del module.__dict__["forward"]
        if before is not None:
            module.__dict__["forward"] = before


def _detached(results: Any) -> list[Any]:
    return [leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in pytree.tree_leaves(results)]


@contextlib.contextmanager
def without_gradient_modes() -> Iterator[None]:
    """Record no ``torch.no_grad()``: no value depends on it, and torch's pass for it loses the branches in a loop."""
    from torch._export.passes import replace_set_grad_with_hop_pass as place

    original = place.replace_set_grad_with_hop_pass

    def erase(graph_module: torch.fx.GraphModule, signature: Any) -> tuple[torch.fx.GraphModule, Any]:
        for module in graph_module.modules():
            if isinstance(module, torch.fx.GraphModule):
                nodes = module.graph.find_nodes(op="call_function", target=torch._C._set_grad_enabled)
                for node in nodes:
                    module.graph.erase_node(node)
                if nodes:
                    module.recompile()
        return graph_module, signature

    place.replace_set_grad_with_hop_pass = erase  # type: ignore[assignment]
    try:
        yield
    finally:
        place.replace_set_grad_with_hop_pass = original
