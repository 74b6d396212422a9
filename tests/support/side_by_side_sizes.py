"""The dynamic dimensions that a situation declares, other sizes for them, and inputs of these sizes."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export import Dim
from torch.utils import _pytree as pytree

__all__ = ["Dimension", "Inputs", "declared", "fresh_inputs", "larger", "named_tensors", "smaller"]

Inputs = tuple[tuple[Any, ...], Mapping[str, Any]]
MOST_ELEMENTS = 1 << 26
REAL_OR_COMPLEX = (
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
)


@dataclasses.dataclass
class Dimension:
    """A size that was declared dynamic: one name, or one unnamed dimension of one input.

    Attributes:
        name: The user's name for it, or "input.axis".
        size: Its size in the example.
        low: Its least size, at least 2.
        high: Its greatest size, or None.
        may_be_fixed: Whether the exporter may fix it (``Dim.AUTO``).
        uses: By the identity of a tensor: its axes, and the function from this size to that of the axis.
    """

    name: str
    size: int
    low: int = 2
    high: int | None = None
    may_be_fixed: bool = False
    uses: dict[int, dict[int, Callable[[int], int]]] = dataclasses.field(default_factory=dict)

    def allows(self, size: int) -> bool:
        return size != self.size and size >= self.low and (self.high is None or size <= self.high)


def larger(dimension: Dimension) -> list[int]:
    """Greater sizes in the order in which they are tried: odd ones first, then multiples."""
    n = dimension.size
    sizes = [n + 1, n + 3, n + 2, *sorted({7, n + 16, n + 32, 2 * n, 3 * n})]
    return [size for size in dict.fromkeys(sizes) if size > n and dimension.allows(size)]


def smaller(dimension: Dimension) -> list[int]:
    """Smaller sizes in the order in which they are tried."""
    n = dimension.size
    sizes = [n - 1, 7, n // 2, n - 2, n - 3, n - 16, n - 32]
    return [size for size in dict.fromkeys(sizes) if size < n and dimension.allows(size)]


def declared(model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], dynamic_shapes: Any) -> list[Dimension]:
    """The dimensions that ``dynamic_shapes`` declares, in the order of the inputs."""
    found: dict[str, Dimension] = {}
    for path, tensor, spec in _specs(model, args, kwargs, dynamic_shapes):
        axes = spec.items() if isinstance(spec, Mapping) else enumerate(spec)
        for axis, what in axes:
            if what is None or isinstance(what, int) or what == Dim.STATIC:
                continue
            _note(found, what, path, tensor, axis % tensor.ndim)
    return list(found.values())


def _note(found: dict[str, Dimension], what: Any, path: str, tensor: torch.Tensor, axis: int) -> None:
    size = tensor.shape[axis]
    root, function = getattr(what, "root", None), getattr(what, "fn", None)
    if root is not None and function is not None:
        size = next(number for number in itertools.count(1) if int(function(number)) >= size)
        what = root
    name = what if isinstance(what, str) else getattr(what, "__name__", f"{path}.{axis}")
    dimension = found.setdefault(name, Dimension(name, size))
    low, high = getattr(what, "min", None), getattr(what, "max", None)
    dimension.low = max(dimension.low, int(low or 0))
    if high is not None and str(high) not in {"int_oo", "oo"}:
        dimension.high = int(high)
    hint = getattr(getattr(what, "type", None), "name", "")
    dimension.may_be_fixed = hint == "AUTO"
    derive = function if function is not None else _same
    dimension.uses.setdefault(id(tensor), {})[axis] = lambda number: int(derive(number))


def _same(size: int) -> int:
    return size


def _specs(
    model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], dynamic_shapes: Any
) -> Iterator[tuple[str, torch.Tensor, Any]]:
    """Each tensor with its path and the entry of ``dynamic_shapes`` for it."""
    if not dynamic_shapes:
        return
    values = _arguments(model, args, kwargs)
    if not isinstance(dynamic_shapes, Mapping):
        dynamic_shapes = dict(zip(values, dynamic_shapes, strict=False))
    for name, value in values.items():
        yield from _walk(name, value, dynamic_shapes.get(name))


def _arguments(model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs by the parameters of ``forward``; those of ``**kwargs`` by their own names."""
    signature = inspect.signature(model.forward if isinstance(model, torch.nn.Module) else model)
    values = dict(signature.bind(*args, **kwargs).arguments)
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD and name in values:
            values.update(values.pop(name))
    return values


def named_tensors(model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """Each tensor of the inputs with its path, such as "x", "boxes_0" or "batch_image"."""
    for name, value in _arguments(model, args, kwargs).items():
        for path, leaf in pytree.tree_flatten_with_path(value)[0]:
            if isinstance(leaf, torch.Tensor):
                yield "_".join([name, *map(_key, path)]), leaf


def _key(entry: Any) -> str:
    return str(next(getattr(entry, name) for name in ("idx", "key", "name") if hasattr(entry, name)))


def _walk(path: str, value: Any, spec: Any) -> Iterator[tuple[str, torch.Tensor, Any]]:
    if spec is None or value is None:
        return
    if isinstance(value, torch.Tensor):
        yield path, value, spec
        return
    if isinstance(value, Mapping):
        pairs = [(key, item, spec.get(key)) for key, item in value.items()]
    else:
        items = value if isinstance(value, Sequence) else pytree.tree_leaves(value)
        specs = spec.values() if isinstance(spec, Mapping) else spec
        pairs = [(key, item, one) for key, (item, one) in enumerate(zip(items, specs, strict=False))]
    for key, item, one in pairs:
        yield from _walk(f"{path}_{key}", item, one)


def fresh_inputs(
    inputs: Inputs, dimensions: Sequence[Dimension], sizes: Mapping[str, int], seed: int, *, reorder: bool
) -> Inputs | None:
    """Inputs of the given sizes, made from the example; None if they would be too large.

    Floating-point values that are no whole numbers are drawn again around those of the example, within their range. An
    axis of another size repeats or leaves out entries of the example: at random for floating-point types, evenly and
    in order for the others (offsets stay sorted, a causal mask stays causal).

    Args:
        inputs: The example.
        dimensions: The dynamic dimensions.
        sizes: The size of each.
        seed: Of the random numbers.
        reorder: Whether integers are reversed along their first axis of more than one element.
    """
    generator = torch.Generator().manual_seed(seed)
    made: dict[int, torch.Tensor] = {}
    large = False

    def make(leaf: Any) -> Any:
        nonlocal large
        if not isinstance(leaf, torch.Tensor) or leaf.layout != torch.strided or leaf.is_nested:
            return leaf
        if id(leaf) not in made:
            wanted = _shape(leaf, dimensions, sizes)
            large = large or wanted.numel() > max(MOST_ELEMENTS, leaf.numel())
            made[id(leaf)] = leaf if large else _fresh(leaf, wanted, generator, reorder)
        return made[id(leaf)]

    args, kwargs = pytree.tree_map(make, (inputs[0], dict(inputs[1])))
    return None if large else (args, kwargs)


def _shape(leaf: torch.Tensor, dimensions: Sequence[Dimension], sizes: Mapping[str, int]) -> torch.Size:
    shape = list(leaf.shape)
    for dimension in dimensions:
        for axis, derive in dimension.uses.get(id(leaf), {}).items():
            shape[axis] = derive(sizes[dimension.name])
    return torch.Size(shape)


def _fresh(leaf: torch.Tensor, shape: torch.Size, generator: torch.Generator, reorder: bool) -> torch.Tensor:
    result, real = leaf.detach(), leaf.dtype in REAL_OR_COMPLEX
    for axis, (before, after) in enumerate(zip(leaf.shape, shape, strict=True)):
        if before != after and before:
            even = torch.arange(after) * before // after
            index = torch.randint(before, (after,), generator=generator) if real else even
            result = result.index_select(axis, index)
    if not real:
        axis = next((axis for axis, size in enumerate(result.shape) if size > 1), None)
        return result.flip(axis) if reorder and axis is not None and leaf.dtype != torch.bool else result.clone()
    if not leaf.numel():
        return result.new_zeros(shape)
    noise = 1 + 0.25 * torch.randn(result.shape, generator=generator).to(result.dtype)
    if leaf.is_complex():
        return result * noise
    changed = (result * noise).clamp(leaf.min(), leaf.max())
    return torch.where(result == result.round(), result, changed).to(leaf.dtype)
