"""The values of variables before and after a branch or an iteration, and how they are made to agree."""

from __future__ import annotations

import collections
import dataclasses
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, Literal, NoReturn

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from opbridge.capture.control_flow.rows import Rows, Unassigned, columns_of
from opbridge.capture.control_flow.site import Disagreement, Site, described, unconverted
from opbridge.capture.control_flow.trees import (
    attributes_of,
    is_object,
    tree_flatten,
    tree_leaves,
    tree_structure,
    tree_unflatten,
)
from opbridge.capture.control_flow.uneven import length_of, present_in, rows_of
from opbridge.torch_graph.largest_sizes import largest, note_range
from opbridge.torch_graph.subgraphs import known_outside, symbols_tracked, untracked

__all__ = [
    "ABSENT",
    "UNDEFINED",
    "Agreement",
    "Contents",
    "Output",
    "as_scalar",
    "is_number",
    "is_value",
    "leaves_of",
    "refill",
    "same_shape",
]


class _Undefined:
    """The value of a variable that is not assigned."""

    def __repr__(self) -> str:
        return "an unassigned variable"


UNDEFINED = _Undefined()
ABSENT = object()
"""The place of a value on a path that does not compute it, and after which nothing reads it."""

Kind = Literal["tensor", "bool", "int", "float"]

_NUMBERS = (bool, int, float, torch.SymBool, torch.SymInt, torch.SymFloat)
_KINDS: dict[type, Kind] = {
    bool: "bool", int: "int", float: "float", torch.SymBool: "bool", torch.SymInt: "int", torch.SymFloat: "float",
}  # fmt: skip
_DTYPES = {"bool": torch.bool, "int": torch.int64, "float": torch.float64}
_ORDER: tuple[Kind, ...] = ("bool", "int", "float")


def is_number(value: Any) -> bool:
    """Whether a value is a Python number or a dynamic number."""
    return type(value) in _NUMBERS


def is_value(value: Any) -> bool:
    """Whether a graph can compute a value: a tensor or a number."""
    return isinstance(value, Tensor) or is_number(value)


def leaves_of(value: Any) -> list[Any]:
    """The tensors, numbers and other values in nested lists, tuples, dicts and objects."""
    return tree_leaves(value)


def same(a: Any, b: Any) -> bool:
    """Whether two leaves are the same object, or equal constants."""
    if a is b:
        return True
    if type(a) is not type(b) or isinstance(a, (Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)):
        return False
    try:
        return bool(a == b)
    except Exception:  # An object may refuse to be compared.
        return False


def same_shape(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether two shapes are known to be equal."""
    return len(a) == len(b) and all(statically_known_true(x == y) for x, y in zip(a, b, strict=True))


@dataclasses.dataclass(frozen=True)
class Output:
    """A value that two paths compute differently.

    Attributes:
        values: The value of each path; ``ABSENT`` where it is not computed.
        kind: What it is for the Python code afterwards.
        dtype: The dtype of the tensor in the graph.
        shape: The shape of the tensor; None if each path has its own sizes.
        device: The device of the tensor.
        form: Makes the tensor in the graph of the tensor of a path; None for the same tensor.
    """

    values: tuple[Any, Any]
    kind: Kind
    dtype: torch.dtype
    shape: tuple[Any, ...] | None
    device: torch.device
    form: Callable[[Tensor], Tensor] | None = None

    def computed(self, value: Any) -> Tensor:
        """The value of one path as a new tensor, inside that path's graph."""
        if value is ABSENT or isinstance(value, Unassigned):
            sizes = [size if known_outside(size) else 0 for size in self.shape or ()]
            return torch.zeros(sizes, dtype=self.dtype, device=self.device)
        tensor = value if isinstance(value, Tensor) else as_scalar(value, self.dtype, self.device)
        tensor = tensor if self.form is None else self.form(tensor)
        tensor = tensor if tensor.dtype == self.dtype else tensor.to(self.dtype)
        if self.shape is not None and tensor.dim() < len(self.shape):
            tensor = tensor.expand(self.shape)
        return tensor.clone(memory_format=torch.contiguous_format)

    def in_python(self, result: Tensor) -> Any:
        """The result as the Python code uses it: a number stays a number."""
        return result.item() if self.kind in ("int", "float") and isinstance(result, Tensor) else result


def as_scalar(value: Any, dtype: torch.dtype, device: torch.device | None = None) -> Tensor:
    """A number as a tensor of rank 0."""
    if isinstance(value, torch.SymBool):
        value = torch.sym_ite(value, 1, 0)
    return torch.full((), value, dtype=dtype, device=device)


class Agreement:
    """The values that two paths must return in the same form.

    Args:
        site: The statement, for refusals.
        paths: What the two paths are, for refusals: "one branch" and "the other".
        choose: Makes one function of the functions that the two paths have.
    """

    def __init__(self, site: Site, paths: tuple[str, str], choose: Callable[[Any, Any], Any] | None = None) -> None:
        self.site = site
        self.paths = paths
        self._choose = choose
        self.outputs: list[Output] = []

    def value(self, name: str, a: Any, b: Any) -> Callable[[Sequence[Any]], Any]:
        """Add a variable. Returns a function that makes its value from the results of the graph."""
        if a is b:
            return lambda results: a
        if a is UNDEFINED or b is UNDEFINED:
            return self._of_one_path(name, a, b)
        if type(a) is type(b) and type(a) in (list, tuple):
            has_other_rows = Rows in map(type, (*a, *b)) and not all(map(_alike, a, b))
            if len(a) != len(b) or has_other_rows:
                return self._list(name, a, b)
        first, structure = tree_flatten(a)
        second, other = tree_flatten(b)
        if structure != other:
            self._refuse(
                name, f"is a {_described(a)} after {self.paths[0]} and a {_described(b)} after {self.paths[1]}"
            )
        made = [self._leaf(name, x, y) for x, y in zip(first, second, strict=True)]
        return lambda results: tree_unflatten([one(results) for one in made], structure)

    def _of_one_path(self, name: str, a: Any, b: Any) -> Callable[[Sequence[Any]], Any]:
        """A variable that one path leaves unassigned: Python would raise an error where it is read after that path."""
        leaves, structure = tree_flatten(b if a is UNDEFINED else a)
        if any(isinstance(leaf, Tensor) and not all(map(known_outside, leaf.shape[1:])) for leaf in leaves):
            # torch would compare the strides with those of an empty tensor.
            return _constantly(UNDEFINED)
        made = []
        for leaf in leaves:
            if is_value(leaf) and (isinstance(leaf, Tensor) or type(leaf) not in (bool, int, float)):
                made.append(self._leaf(name, *((ABSENT, leaf) if a is UNDEFINED else (leaf, ABSENT))))
            else:
                made.append(_constantly(leaf))
        return lambda results: tree_unflatten([one(results) for one in made], structure)

    def _list(self, name: str, a: Any, b: Any) -> Callable[[Sequence[Any]], Any]:
        """Lists or tuples of different lengths: what only one of them has becomes rows that are kept or not."""
        end = _same_at_the_end(a, b)
        common = 0
        while not end and common < min(len(a), len(b)) and _alike(a[common], b[common]):
            common += 1
        made = [self.value(name, x, y) for x, y in zip(a[:common], b[:common], strict=True)]
        for side, tail in enumerate((a[common : len(a) - end], b[common : len(b) - end])):
            for element in tail:
                made.append(self._added(name, element, side))
        made += map(_constantly, a[len(a) - end :])
        return lambda results: type(a)(one(results) for one in made)

    def _added(self, name: str, element: Any, side: int) -> Callable[[Sequence[Any]], Any]:
        """An element that a list has on one path only."""
        columns = columns_of([element])
        if columns is not None:
            parts, structure = [self._added(name, column[0], side) for column in columns[0]], columns[1]
            return lambda results: Rows(tuple(part(results) for part in parts), structure=structure)
        if not isinstance(element, Rows) and not is_value(element):
            self._refuse(name, f"has a different number of elements after {self.paths[0]} than after {self.paths[1]}")
        return self._rows(name, element, side)

    def _rows(self, name: str, element: Any, side: int) -> Callable[[Sequence[Any]], Any]:
        if isinstance(element, Tensor) and not all(map(known_outside, element.shape)):
            return self._uneven_rows(name, element, side)
        rows = element if isinstance(element, Rows) else None
        if rows is not None and isinstance(rows.values, Tensor) and not all(map(known_outside, rows.values.shape)):
            reason = (
                f"{described(name, 'the list ')} grows in a loop whose number of iterations is computed in a branch"
            )
            raise unconverted(self.site, reason, "compute the number of iterations before the branch.")
        values = element if rows is None else rows.values
        are_numbers, joined = (is_number(values), None) if rows is None else (rows.are_numbers, rows.joined)
        present = True if rows is None or rows.kept is None else rows.kept
        dtype = _DTYPES[_KINDS[type(values)]] if is_number(values) else values.dtype
        device = torch.device("cpu") if is_number(values) else values.device
        shape = (1, *getattr(values, "shape", ())) if rows is None else tuple(values.shape)
        index = len(self.outputs)
        self.outputs.append(Output(_on_side(side, values), "tensor", dtype, shape, device))
        self.outputs.append(Output(_on_side(side, present), "tensor", torch.bool, shape[:1], device))
        if rows is not None and rows.lengths is not None:
            lengths = _on_side(side, rows.lengths)
            self.outputs.append(Output(lengths, "tensor", torch.int64, tuple(rows.lengths.shape), device))
            return lambda results: Rows(results[index], results[index + 1], are_numbers, joined, results[index + 2])
        return lambda results: Rows(results[index], results[index + 1], are_numbers, joined)

    def _uneven_rows(self, name: str, tensor: Tensor, side: int) -> Callable[[Sequence[Any]], Any]:
        """A tensor whose size depends on data, as rows that are kept or not."""
        known = symbols_tracked()
        dims = [dim for dim, size in enumerate(tensor.shape) if not known_outside(size)]
        most = largest(tensor.shape[dims[0]], known) if len(dims) == 1 else None
        if most is None:
            self._refuse(name, f"gets a tensor without a largest size after {self.paths[side]}")
        index, (dim,) = len(self.outputs), dims
        rest = (*tensor.shape[:dim], *tensor.shape[dim + 1 :])
        forms = (
            (rows_of, tensor.dtype, (most, *rest)), (present_in, torch.bool, (most,)), (length_of, torch.int64, (1,)),
        )  # fmt: skip
        for form, dtype, shape in forms:
            made = functools.partial(form, most=most, dim=dim)
            self.outputs.append(Output(_on_side(side, tensor), "tensor", dtype, shape, tensor.device, made))
        return lambda results: Rows(results[index], results[index + 1], False, dim, results[index + 2])

    def _leaf(self, name: str, x: Any, y: Any) -> Callable[[Sequence[Any]], Any]:
        if same(x, y):
            return lambda results: x
        x, y = (ABSENT if isinstance(value, Unassigned) else value for value in (x, y))
        given = [value for value in (x, y) if value is not ABSENT]
        if self._choose is not None and callable(x) and callable(y):
            chosen = self._choose(x, y)
            return lambda results: chosen
        if not all(map(is_value, given)):
            self._refuse(name, f"is {_described(x)} after {self.paths[0]} and {_described(y)} after {self.paths[1]}")
        index = len(self.outputs)
        output = self._output(name, x, y, given)
        self.outputs.append(output)

        def made(results: Sequence[Any]) -> Any:
            number = output.in_python(results[index])
            if isinstance(number, torch.SymInt) and all(isinstance(one, (int, torch.SymInt)) for one in output.values):
                note_range(number, output.values, symbols_tracked())
            return number

        return made

    def _output(self, name: str, x: Any, y: Any, given: Sequence[Any]) -> Output:
        tensors = [value for value in given if isinstance(value, Tensor)]
        if not tensors:
            kind = max((_KINDS[type(value)] for value in given), key=_ORDER.index)
            return Output((x, y), kind, _DTYPES[kind], (), torch.device("cpu"))
        numbers = [value for value in given if is_number(value)]
        dtype = _promoted(tensors[0].dtype, tensors[-1].dtype) if not numbers else _with(tensors[0], numbers[0])
        ranks = {tensor.dim() for tensor in tensors}
        if len(ranks) > 1:
            shapes = " and ".join(str(tuple(tensor.shape)) for tensor in tensors)
            self._refuse(name, f"has {shapes} as its shapes after {self.paths[0]} and {self.paths[1]}")
        alone = len(tensors) == 1
        return Output((x, y), "tensor", dtype, tuple(tensors[0].shape) if alone else None, tensors[0].device)

    def _refuse(self, name: str, what: str) -> NoReturn:
        fix = f"give {described(name)} the same form on every path, a tensor of one rank for example."
        error = unconverted(self.site, f"{described(name)} {what}", fix)
        raise Disagreement(error.finding, self.site)


def _constantly(value: Any) -> Callable[[Sequence[Any]], Any]:
    return lambda results: value


def _promoted(a: torch.dtype, b: torch.dtype) -> torch.dtype:
    if a == b:
        return a
    with untracked():  # torch would make this call a node of the graph.
        return torch.promote_types(a, b)


def _with(tensor: Tensor, number: Any) -> torch.dtype:
    """The dtype of a tensor or a number, as if they were added."""
    kind = _KINDS[type(number)]
    if kind == "float" and not (tensor.is_floating_point() or tensor.is_complex()):
        return torch.get_default_dtype()
    return torch.int64 if kind == "int" and tensor.dtype == torch.bool else tensor.dtype


def _same_at_the_end(a: Sequence[Any], b: Sequence[Any]) -> int:
    """The number of elements of the shorter of two lists, if the longer one was made by adding to its front."""
    length = min(len(a), len(b))
    pairs = list(zip(a[len(a) - length :], b[len(b) - length :], strict=True))
    return length if all(x is y for x, y in pairs) and not all(map(operator.is_, a, b)) else 0


def _alike(a: Any, b: Any) -> bool:
    if isinstance(a, Rows) != isinstance(b, Rows):
        return False
    return tree_structure(a) == tree_structure(b)


def _on_side(side: int, value: Any) -> tuple[Any, Any]:
    return (value, ABSENT) if side == 0 else (ABSENT, value)


def _described(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, (list, tuple, dict)):
        return f"{type(value).__name__} of {len(value)}"
    return repr(value) if value is None or isinstance(value, (str, int, float)) else type(value).__name__


class Contents:
    """The lists, dicts and sets that variables hold, whose contents a traced branch may change.

    Attributes:
        containers: The containers, also those inside others.
        names: For each of them, the variable that holds it.
    """

    def __init__(self, values: Sequence[Any], names: Sequence[str]) -> None:
        self.containers: list[Any] = []
        self.names: list[str] = []
        for name, value in zip(names, values, strict=True):
            self._add(name, value)
        self._before = self.now()

    def _add(self, name: str, value: Any) -> None:
        if type(value) in _CONTAINERS and not any(value is one for one in self.containers):
            self.containers.append(value)
            self.names.append(name)
        elif is_object(value):
            value = attributes_of(value)
        elif not isinstance(value, tuple):
            return
        for element in value.values() if isinstance(value, dict) else value:
            self._add(name, element)

    def now(self) -> list[Any]:
        """A copy of the contents of each container."""
        return [dict(one) if type(one) is collections.Counter else one.copy() for one in self.containers]

    def restore(self) -> None:
        """Give the containers the contents that they had."""
        for container, before in zip(self.containers, self._before, strict=True):
            refill(container, before)


_OF_COLLECTIONS = (collections.OrderedDict, collections.deque, collections.defaultdict, collections.Counter)
_CONTAINERS = (list, dict, set, *_OF_COLLECTIONS)


def refill(container: Any, contents: Any) -> None:
    """Replace the contents of a list, dict or set."""
    if isinstance(container, list):
        container[:] = contents
        return
    container.clear()
    (container.extend if isinstance(container, collections.deque) else container.update)(contents)
