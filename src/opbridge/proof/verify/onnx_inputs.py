"""Creates fresh inputs for an ONNX model without example inputs: sizes of its dimensions, and values of its types."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir
import torch

from opbridge.errors import InputError
from opbridge.kernels.dtypes import numpy_dtype
from opbridge.proof.verify.fresh import EXAMPLE_VALUES, fresh_tensor
from opbridge.proof.verify.inputs import to_numpy, to_torch

__all__ = ["WIDEST_SCALE", "OnnxInputs", "OnnxSizes"]

WIDEST_SCALE, _NARROWEST_SCALE = 0, 3
_STEPS = (1, 2, 4, 8, 16, 32, 64)
_SIDES = (3, 8, 16, 32, 64, 128, 224, 256)
_TABLES = frozenset(("Gather", "GatherElements", "GatherND"))
_PASSES = frozenset(("Cast", "Identity", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Expand", "Transpose", "Slice"))


class OnnxInputs:
    """The inputs of a model.

    Args:
        model: The model.
        examples: An array per input that the model accepts, if known; their sizes are then tried first.

    Attributes:
        names: The names of the inputs, in order.
        base: The sizes of the dynamic dimensions in the examples; empty without examples.

    Raises:
        InputError: The rank or the type of an input is not stated.
    """

    def __init__(self, model: ir.Model, examples: Mapping[str, np.ndarray] | None = None) -> None:
        self._values = [value for value in model.graph.inputs if value.name not in model.graph.initializers]
        self.names = [str(value.name) for value in self._values]
        self._shapes = {str(value.name): _shape(value) for value in self._values}
        self._dtypes = {str(value.name): _dtype(value) for value in self._values}
        self._bounds = {str(value.name): _table_size(value) for value in self._values}
        self._examples = dict(examples or {})
        self.base = self.sizes_of(self._examples)

    @property
    def symbols(self) -> tuple[str, ...]:
        """The dynamic dimensions."""
        return tuple(dict.fromkeys(size for shape in self._shapes.values() for size in shape if isinstance(size, str)))

    def sizes_of(self, arrays: Mapping[str, np.ndarray]) -> dict[str, int]:
        """The sizes of the dynamic dimensions in these arrays."""
        found: dict[str, int] = {}
        for name, array in arrays.items():
            shape = self._shapes.get(name, ())
            for size, actual in zip(shape, np.shape(array), strict=False):
                if isinstance(size, str):
                    found.setdefault(size, int(actual))
        return found

    def first_sizes(self) -> Iterator[dict[str, int]]:
        """The first assignments to try, small ones first; only the examples' sizes if there are examples."""
        if self._examples or not self.symbols:
            yield dict(self.base)
            return
        leading = {shape[0] for shape in self._shapes.values() if shape and isinstance(shape[0], str)}
        for side in _SIDES:
            # If the engine confuses two dimensions, this shows only if their sizes differ.
            yield {
                name: 2 + position if name in leading else side + (position if side < 8 else 0)
                for position, name in enumerate(self.symbols)
            }
        for side in _SIDES[1:]:
            yield dict.fromkeys(self.symbols, side)

    def edges(self, base: Mapping[str, int]) -> Iterator[tuple[str, dict[str, int]]]:
        """Assignments with one dimension at 0, at 1, or one larger, which is odd if its own size is even."""
        for name, size in base.items():
            for edge in (0, 1, size + 1):
                if edge != size:
                    yield f"size {name}={edge}", {**base, name: edge}

    def resized(self, feeds: Mapping[str, np.ndarray], sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
        """Arrays cut to smaller sizes of the dynamic dimensions."""
        found: dict[str, np.ndarray] = {}
        for name, array in feeds.items():
            shape = [sizes[size] if isinstance(size, str) else size for size in self._shapes[name]]
            found[name] = np.ascontiguousarray(array[tuple(map(slice, shape))]).reshape(shape)
        return found

    def elements(self, sizes: Mapping[str, int]) -> int:
        """The number of elements of all inputs at these sizes."""
        shapes = self._shapes.values()
        return sum(math.prod(sizes[size] if isinstance(size, str) else size for size in shape) for shape in shapes)

    def feeds(self, sizes: Mapping[str, int], seed: int, scale: int = WIDEST_SCALE) -> dict[str, np.ndarray]:
        """Fresh arrays of these sizes, with the statistics of the examples if there are any.

        Raises:
            InputError: No values can be created for the type of an input.
        """
        random = np.random.default_rng(seed)
        return {name: self._array(name, sizes, random, scale) for name in self.names}

    def scales(self) -> range:
        """The scales of values to try, the widest first."""
        integers = any(np.dtype(numpy_dtype(dtype)).kind in "iu" for dtype in self._dtypes.values())
        return range(WIDEST_SCALE, _NARROWEST_SCALE + 1) if integers else range(WIDEST_SCALE, WIDEST_SCALE + 2)

    def _array(self, name: str, sizes: Mapping[str, int], random: np.random.Generator, scale: int) -> np.ndarray:
        shape = [sizes[size] if isinstance(size, str) else size for size in self._shapes[name]]
        dtype = self._dtypes[name]
        example = self._examples.get(name)
        if example is not None and dtype != "str":
            return _like_example(example, tuple(shape), random, min(scale, EXAMPLE_VALUES), self._bounds[name])
        if dtype == "str":
            return np.array([f"s{number}" for number in range(int(np.prod(shape)))], object).reshape(shape)
        kind = numpy_dtype(dtype)
        if dtype == "bool":
            return random.random(shape) < 0.5
        if kind.kind in "iu":
            bound = self._bounds[name]
            upper = (bound or 10, bound or 2, 2, 1)[scale]
            low = 1 if len(shape) < 2 and bound is None else 0
            drawn = random.integers(low, low + upper, shape)
            if bound is not None and scale == WIDEST_SCALE and drawn.size:
                # A wrong bound in an engine shows at the last row.
                drawn.reshape(-1)[random.integers(drawn.size)] = bound - 1
            return drawn.astype(kind)
        if kind.kind == "c":
            return (random.standard_normal(shape) + 1j * random.standard_normal(shape)).astype(kind)
        values = random.standard_normal(shape) if scale == WIDEST_SCALE else random.random(shape)
        return np.asarray(values).astype(kind)


@dataclasses.dataclass(frozen=True)
class OnnxSizes:
    """See :class:`~opbridge.proof.verify.size_search.SizesToTry`; sizes have no ranges and no relations."""

    base: Mapping[str, int]
    from_one: Sequence[str] = ()

    def candidates(self, name: str, direction: int) -> list[int]:
        """Sizes at a distance from the base size, and multiples or fractions of it."""
        size = self.base[name]
        scaled = 2 * size if direction > 0 else size // 2
        return [*(size + direction * step for step in _STEPS), scaled, *([1] if direction < 0 and size > 1 else [])]

    def allowed(self, sizes: Mapping[str, int]) -> bool:
        """Always true."""
        return True

    def others(self, direction: int, done: Sequence[Mapping[str, int]]) -> Iterator[dict[str, int]]:
        """Assignments with every dimension at another size than in the base, by different and by equal distances."""
        for step in _STEPS:
            apart = {name: size + direction * step * (1 + i % 3) for i, (name, size) in enumerate(self.base.items())}
            together = {name: size + direction * step for name, size in self.base.items()}
            yield from (sizes for sizes in (apart, together) if min(sizes.values()) > 0)
        yield {name: size * 2 if direction > 0 else max(1, size // 2) for name, size in self.base.items()}
        if direction < 0:
            yield from ({**self.base, name: 1} for name in self.base)


def _like_example(
    example: np.ndarray, shape: tuple[int, ...], random: np.random.Generator, scale: int, rows: int | None
) -> np.ndarray:
    """A fresh array as :func:`~opbridge.proof.verify.fresh.fresh_tensor` draws it for a captured program."""
    name = example.dtype.name
    like = torch.empty(0, dtype=getattr(torch, name))
    return to_numpy(fresh_tensor(to_torch(example, like), shape, random, scale, rows), complex_pairs=False)


def _shape(value: ir.Value) -> Sequence[int | str]:
    if value.shape is None:
        raise InputError(
            f"The model does not state the rank of its input {value.name!r}, so no fresh inputs can be created.",
            fix="pass your own inputs: opbridge verify DIR --inputs FILE.npz",
        )
    return tuple(
        size if isinstance(size, int) else size.value or f"{value.name}.{axis}" for axis, size in enumerate(value.shape)
    )


def _dtype(value: ir.Value) -> str:
    if value.dtype is None or not isinstance(value.type, ir.TensorType):
        raise InputError(
            f"The model's input {value.name!r} is not a tensor of a known type, so no fresh inputs can be created.",
            fix="pass your own inputs: opbridge verify DIR --inputs FILE.npz",
        )
    return "str" if value.dtype is ir.DataType.STRING else str(value.dtype.numpy().name)


def _table_size(value: ir.Value) -> int | None:
    """The number of rows of the smallest table that an input is an index into; None if it is not an index."""
    found: list[int] = []
    waiting, seen = [value], set()
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        for node, position in current.uses():
            table = node.inputs[0] if node.inputs else None
            if node.op_type in _TABLES and position == 1 and table is not None and table.shape is not None:
                axis = node.attributes.get_int("axis", 0)
                rows = table.shape[axis] if len(table.shape) else None
                if isinstance(rows, int):
                    found.append(rows)
            elif node.op_type in _PASSES and position == 0:
                waiting.extend(node.outputs)
    return min(found, default=None)
