"""The dimensions that ``dynamic_shapes`` declares as dynamic, and the example inputs at other sizes of them."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from opbridge.torch_graph.input_parts import map_declared

__all__ = [
    "SMALLEST",
    "DeclaredDimensions",
    "DynamicDimension",
    "Place",
    "declared_dimensions",
    "declared_places",
    "fixed_at",
]

SMALLEST = 2
"""torch.export may treat the sizes 0 and 1 as constants, because shapes mean something else there."""

_UNLIMITED = 2**31
"""Where the sizes of a dimension without a limit end."""


@dataclasses.dataclass(frozen=True)
class Place:
    """One axis of one input, or an input that is an int.

    Attributes:
        path: The input, as in Python: ``"x"``, ``"boxes[0]"``, ``"batch['mask']"``.
        value: The example.
        axis: The axis, as the user wrote it; None for an int.
        declaration: Its entry in ``dynamic_shapes``: a name, a ``torch.export.Dim`` or a marker such as ``Dim.AUTO``.
    """

    path: str
    value: Any
    axis: Any
    declaration: Any

    @property
    def is_number(self) -> bool:
        """Whether it is an int."""
        return type(self.value) is int

    @property
    def size(self) -> int:
        """The size in the example, or the int."""
        return int(self.value if self.is_number else self.value.shape[self.axis])

    @property
    def source(self) -> str:
        """The size in torch's notation: ``L['x'].size()[0]``; ``L['n']`` for an int."""
        name = re.split(r"[.\[]", self.path, maxsplit=1)[0]
        axis = "" if self.is_number else f".size()[{self.axis}]"
        return f"L[{name!r}]{self.path.removeprefix(name)}{axis}"

    @property
    def expression(self) -> str:
        """The size in Python: ``x.shape[0]``; ``n`` for an int."""
        return self.path if self.is_number else f"{self.path}.shape[{self.axis}]"

    def __str__(self) -> str:
        return f"input {self.path}" if self.is_number else f"dimension {self.axis} of {self.path}"


@dataclasses.dataclass(frozen=True)
class DynamicDimension:
    """A dimension whose size the user declared to vary; all its places have one name.

    Attributes:
        name: The user's name; for a dimension without a name, its place.
        places: Its places, each with the function that computes its size (``2*n`` of a derived dimension).
        size: The size in the example.
        low: The smallest size; if no range was declared, 2, or for an int 0, or that of the example if it is negative.
        high: The largest size; None for no limit.
    """

    name: str
    places: tuple[tuple[Place, Callable[[int], int]], ...]
    size: int
    low: int
    high: int | None

    @property
    def is_number(self) -> bool:
        """Whether it is an input that is an int."""
        return any(place.is_number for place, _ in self.places)

    @property
    def lowest(self) -> int:
        """The smallest size that is tried."""
        return self.low if self.is_number or self.low == 1 else max(SMALLEST, self.low)

    def sizes_of(self, derived: Callable[[int], int]) -> range:
        """The sizes of a place, from that of :attr:`lowest` on."""
        first, second = derived(self.lowest), derived(self.lowest + 1)
        return range(first, _UNLIMITED if self.high is None else derived(self.high) + 1, second - first)

    def sizes_at(self, size: int) -> dict[str, int]:
        """The size of each place, by its :attr:`Place.source`, if the dimension has this size."""
        return {place.source: derived(size) for place, derived in self.places}


@dataclasses.dataclass(frozen=True)
class DeclaredDimensions:
    """What ``dynamic_shapes`` declares for some example inputs.

    Attributes:
        names: The names of the parameters.
        places: All declared axes and ints.
        dimensions: The dimensions that must stay dynamic: not those declared with ``Dim.AUTO``, ``Dim.STATIC`` or a
            number.
    """

    names: tuple[str, ...]
    places: tuple[Place, ...]
    dimensions: tuple[DynamicDimension, ...]

    def resized(
        self, example: tuple[tuple[Any, ...], dict[str, Any]], sizes: Mapping[str, int]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The example inputs with some axes at other sizes; the contents of the example repeat, or are cut off.

        Args:
            example: The positional and the keyword arguments.
            sizes: The new sizes, by :attr:`Place.source`.
        """
        axes = self._axes(sizes)
        numbers = {one.path: sizes[one.source] for one in self.places if one.is_number and one.source in sizes}

        def resize(tensor: torch.Tensor) -> torch.Tensor:
            for axis, size in axes.get(id(tensor), {}).items():
                tensor = _at_size(tensor, axis, size)
            return tensor

        def changed(name: str | None, value: Any) -> Any:
            def change(keys: Any, leaf: Any) -> Any:
                if isinstance(leaf, torch.Tensor):
                    return resize(leaf)
                return numbers.get(f"{name}{torch.utils._pytree.keystr(keys)}", leaf) if type(leaf) is int else leaf

            return torch.utils._pytree.tree_map_with_path(change, value)

        args, kwargs = example
        named = itertools.zip_longest(self.names[: len(args)], args)
        return tuple(changed(*one) for one in named), {name: changed(name, value) for name, value in kwargs.items()}

    @contextlib.contextmanager
    def stated_by(self, module: torch.nn.Module, example: Any) -> Iterator[None]:
        """Let a module state inside the block that the sizes of a dimension with several places are those of one size.

        torch gives each place a symbol of its own otherwise, and concludes this only where the model requires it.

        Args:
            module: The module.
            example: The example inputs as ``(args, kwargs)``; no tensor occurs twice.
        """
        hook = module.register_forward_pre_hook(
            lambda module, *inputs: self._state(dict(zip(map(id, _leaves(example)), _leaves(inputs), strict=False))),
            with_kwargs=True,
        )
        try:
            yield
        finally:
            hook.remove()

    def _state(self, given: Mapping[int, torch.Tensor]) -> None:
        for dimension in self.dimensions:
            sizes = [
                (given[id(place.value)].shape[place.axis], derived)
                for place, derived in dimension.places
                if not place.is_number
            ]
            root = next((size for size, derived in sizes if derived is _same), None)
            for size, derived in sizes if root is not None else ():
                torch._check(size == derived(root))  # type: ignore[arg-type]

    def elements(self, example: Any, sizes: Mapping[str, int]) -> int:
        """The number of elements of :meth:`resized`."""
        axes = self._axes(sizes)
        return sum(
            math.prod(axes.get(id(tensor), {}).get(axis, size) for axis, size in enumerate(tensor.shape))
            for tensor in _leaves(example)
        )

    def _axes(self, sizes: Mapping[str, int]) -> dict[int, dict[int, int]]:
        """The new size of each axis, by the id of the tensor."""
        axes: dict[int, dict[int, int]] = {}
        for place in self.places:
            if not place.is_number and place.source in sizes:
                axes.setdefault(id(place.value), {})[place.axis] = sizes[place.source]
        return axes


def _leaves(example: Any) -> list[torch.Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(example) if isinstance(leaf, torch.Tensor)]


def declared_places(arguments: Mapping[str, Any], dynamic_shapes: Any) -> Iterator[Place]:
    """Each entry of ``dynamic_shapes`` that is not None, if it has the structure of the inputs.

    Args:
        arguments: The example inputs by the names of the parameters of ``forward``.
        dynamic_shapes: In the form of ``torch.export.export``.
    """
    shapes = _by_name(arguments, dynamic_shapes)
    found: list[Place] = []

    def add(path: str, value: Any, declared: Any) -> None:
        if isinstance(value, torch.Tensor):
            found.extend(Place(path, value, axis, entry) for axis, entry in _by_axis(declared) if entry is not None)
        elif type(value) is int and declared is not None:
            found.append(Place(path, value, None, declared))

    if isinstance(shapes, Mapping):
        for name, value in arguments.items():
            map_declared(add, name, value, shapes.get(name))
    yield from found


def _by_axis(declared: Any) -> Iterable[tuple[Any, Any]]:
    """The entries of a tensor."""
    if isinstance(declared, Mapping):
        return declared.items()
    return enumerate(declared) if isinstance(declared, (tuple, list)) else ()


def _by_name(arguments: Mapping[str, Any], dynamic_shapes: Any) -> Any:
    """``dynamic_shapes`` by the names of the parameters; what is neither that nor by position is returned unchanged."""
    if isinstance(dynamic_shapes, (tuple, list)):
        return dict(zip(arguments, dynamic_shapes, strict=False))
    return dynamic_shapes


def fixed_at(arguments: Mapping[str, Any], dynamic_shapes: Any, sources: Collection[str]) -> dict[str, Any]:
    """``dynamic_shapes`` by the names of the parameters, with some axes of a constant size.

    Args:
        arguments: The example inputs by the names of the parameters of ``forward``.
        dynamic_shapes: In the form of ``torch.export.export``.
        sources: The :attr:`Place.source` of each axis that has a constant size.
    """
    shapes = _by_name(arguments, dynamic_shapes)

    def fixed(path: str, value: Any, declared: Any) -> Any:
        if isinstance(value, torch.Tensor):
            pairs = _by_axis(declared)
            return {axis: None if Place(path, value, axis, one).source in sources else one for axis, one in pairs}
        return None if type(value) is int and Place(path, value, None, declared).source in sources else declared

    return {name: map_declared(fixed, name, value, shapes.get(name)) for name, value in arguments.items()}


def declared_dimensions(arguments: Mapping[str, Any], dynamic_shapes: Any) -> DeclaredDimensions:
    """The dimensions that ``dynamic_shapes`` declares, with the arguments of :func:`declared_places`."""
    places = tuple(
        place
        for place in declared_places(arguments, dynamic_shapes)
        if place.is_number or (isinstance(place.axis, int) and 0 <= place.axis < place.value.dim())
    )
    found: dict[str, list[Place]] = {}
    for place in places:
        name = _name(place.declaration) or (str(place) if _is_dynamic_marker(place.declaration) else None)
        if name is not None:
            found.setdefault(name, []).append(place)
    dimensions = (_dimension(name, of_name) for name, of_name in found.items())
    return DeclaredDimensions(
        tuple(arguments), places, tuple(dimension for dimension in dimensions if dimension is not None)
    )


def _name(declared: Any) -> str | None:
    root = getattr(declared, "root", declared)
    name = root if isinstance(root, str) else getattr(root, "__name__", None)
    return name if isinstance(name, str) and not isinstance(getattr(root, "value", None), int) else None


def _is_dynamic_marker(declared: Any) -> bool:
    """Whether this is ``Dim.DYNAMIC``, with or without limits."""
    return getattr(getattr(declared, "type", None), "name", "") == "DYNAMIC"


def _dimension(name: str, places: Sequence[Place]) -> DynamicDimension | None:
    """None if the sizes in the example contradict each other; torch.export then reports it."""
    functions = tuple((place, getattr(place.declaration, "fn", _same)) for place in places)
    actual = [(place.size, derived) for place, derived in functions]
    # An int may be negative.
    sizes = itertools.chain((size for size, _ in actual), range(max(size for size, _ in actual) + 1))
    size = next((size for size in sizes if all(derived(size) == other for other, derived in actual)), None)
    if size is None:
        return None
    root = getattr(places[0].declaration, "root", places[0].declaration)
    low, high = getattr(root, "min", None), getattr(root, "max", None)
    smallest = min(0, size) if all(place.is_number for place in places) else SMALLEST
    return DynamicDimension(name, functions, size, low or smallest, high if isinstance(high, int) else None)


def _same(size: int) -> int:
    return size


def _at_size(tensor: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    before = tensor.shape[axis]
    if size == before:
        return tensor
    if before == 0:
        return tensor.new_zeros((*tensor.shape[:axis], size, *tensor.shape[axis + 1 :]))
    return tensor.index_select(axis, torch.arange(size, device=tensor.device) % before)
