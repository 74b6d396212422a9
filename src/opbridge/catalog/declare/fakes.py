"""Checks that the shape functions of custom operators agree with the operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opbridge.errors import CaptureError

if TYPE_CHECKING:
    import torch

__all__ = ["check_fakes", "tensors_in"]


def check_fakes(program: torch.export.ExportedProgram) -> None:
    """Check that the shape function of each custom operator agrees with the operator's results.

    Each distinct custom operator of the program runs once on random inputs of the captured sizes.

    Raises:
        CaptureError: The shape or dtype returned by a shape function differs from the operator's.
    """
    import torch

    from opbridge.torch_graph.random_numbers import own_random_numbers

    seen: set[tuple[Any, ...]] = set()
    nodes = [
        node
        for module in program.graph_module.modules()
        if isinstance(module, torch.fx.GraphModule)
        for node in module.graph.nodes
    ]
    with own_random_numbers():
        for node in nodes:
            if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace in _TORCH_NAMESPACES:
                continue
            fakes = [value.meta["val"] for value in node.all_input_nodes]
            key = (node.target, *((tuple(map(str, f.shape)), f.dtype) for f in fakes if isinstance(f, torch.Tensor)))
            if key not in seen:
                seen.add(key)
                _check_fake(node)


_TORCH_NAMESPACES = {"aten", "prims", "prim", "torchvision", "_c10d_functional", "higher_order", "quantized_decomposed"}


def _check_fake(node: Any) -> None:
    import torch

    def concrete(value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            value = value.meta["val"]
        if isinstance(value, torch.Tensor):
            shape = [_hint(size) for size in value.shape]
            if value.dtype.is_floating_point or value.dtype.is_complex:
                return torch.rand(shape, dtype=value.dtype)
            return torch.zeros(shape, dtype=value.dtype)
        return _hint(value) if isinstance(value, torch.SymInt) else value

    args, kwargs = torch.fx.node.map_aggregate((node.args, dict(node.kwargs)), concrete)
    try:
        with torch.no_grad():
            real = node.target(*args, **kwargs)
    except Exception:  # The operator may reject a random input; that is no statement about its fake.
        return
    fake = node.meta["val"]
    for position, (a, b) in enumerate(zip(tensors_in(real), tensors_in(fake), strict=False)):
        sizes = tuple(_known(size) for size in b.shape)
        agrees = a.dim() == len(sizes) and all(s is None or s == t for s, t in zip(sizes, a.shape, strict=True))
        if not agrees or a.dtype != b.dtype:
            raise CaptureError(
                f"The fake of {node.target.name()} disagrees with the operator: output {position} is "
                f"{_describe(a)}, but its fake returns {_describe(b)}.",
                fix="correct the shape function (its .fake, or opbridge.fake_for) so that it returns the same shape "
                "and dtype as the operator.",
            )


def tensors_in(value: Any) -> list[Any]:
    """The tensors among an operator's arguments or results."""
    import torch

    return [item for item in torch.utils._pytree.tree_leaves(value) if isinstance(item, torch.Tensor)]


def _known(size: Any) -> int | None:
    """The size in the example input; None for a size that depends on data."""
    node = getattr(size, "node", None)
    if node is None:
        return int(size)
    return int(node.hint) if node.has_hint() else None


def _hint(size: Any) -> int:
    known = _known(size)
    return 4 if known is None else known


def _describe(tensor: Any) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape ({', '.join(map(str, tensor.shape))})"
