"""Creates fresh inputs with the statistics of the example inputs, at their sizes and at other sizes."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import sympy  # type: ignore[import-untyped]
import torch
from torch.export.graph_signature import InputKind, SymIntArgument, TensorArgument

from opbridge.capture.capture import Captured
from opbridge.errors import InputError
from opbridge.kernels.dtypes import numpy_dtype
from opbridge.proof.verify.fresh import LENGTHS, fresh_tensor, lengths_up_to
from opbridge.proof.verify.index_columns import OFFSETS, index_columns
from opbridge.proof.verify.index_ranges import index_ranges
from opbridge.proof.verify.sizes import Sizes

__all__ = ["InputSpecs", "numbers_as", "to_numpy", "to_torch"]

_BIT_TYPES = {1: torch.uint8, 2: torch.int16}


def to_numpy(value: Any, complex_pairs: bool = True) -> np.ndarray:
    """A tensor or number as an ONNX input: a complex tensor as pairs with a trailing axis of 2, an int as int64.

    Args:
        value: A tensor on any device, a bool, an int or a float.
        complex_pairs: Whether a complex tensor becomes pairs.
    """
    if isinstance(value, bool):
        return np.asarray(value)
    if isinstance(value, int):
        return np.asarray(value, dtype=np.int64)
    if isinstance(value, float):
        return np.asarray(value, dtype=np.float32)
    tensor = value.detach().cpu().contiguous()
    if tensor.is_complex() and complex_pairs:
        tensor = torch.view_as_real(tensor.resolve_conj())
    tensor = tensor.resolve_neg()
    name = str(tensor.dtype).removeprefix("torch.")
    try:
        array: np.ndarray = tensor.numpy()
    except TypeError:
        array = tensor.view(_BIT_TYPES[tensor.element_size()]).numpy().view(numpy_dtype(name))
    return array


def numbers_as(own: Sequence[np.ndarray], values: Sequence[Any]) -> list[np.ndarray]:
    """Results of PyTorch, a Python number among them in the dtype of the captured program's tensor.

    Example: the sum of the rows of a tensor without rows, in a loop that starts with ``total = 0``.
    """
    arrays = [to_numpy(value) for value in values]
    for place, (value, like) in enumerate(zip(values, own, strict=False)):
        if type(value) is int and like.ndim == 0:
            arrays[place] = arrays[place].astype(like.dtype)
    return arrays


def to_torch(array: np.ndarray, like: Any) -> Any:
    """The tensor or int that the ONNX input ``array`` represents; ``like`` is the example's value."""
    if not isinstance(like, torch.Tensor):
        return int(array)
    array = np.array(array, order="C")
    name = str(like.dtype).removeprefix("torch.")
    if like.is_complex() and array.dtype.kind != "c":
        return torch.complex(*torch.from_numpy(array).unbind(-1))
    if array.dtype.kind == "V" or not _torch_has(array.dtype):
        bits = torch.from_numpy(array.view(f"uint{8 * array.itemsize}" if array.itemsize == 1 else "int16"))
        return bits.view(getattr(torch, name))
    return torch.from_numpy(array)


def _torch_has(dtype: np.dtype) -> bool:
    try:
        torch.from_numpy(np.empty(0, dtype))
    except TypeError:
        return False
    return True


@dataclasses.dataclass(frozen=True)
class _Input:
    """One flattened user input.

    Attributes:
        name: The ONNX name.
        position: The position among all flattened inputs.
        example: The example's value.
        shape: The symbolic shape.
        symbol: The symbol, if the input is an integer.
        rows: The number of rows of the table that the input is an index into; None if it is not an index.
        columns: For the columns that are indices, the number of what they count.
    """

    name: str
    position: int
    example: Any
    shape: tuple[sympy.Expr, ...]
    symbol: sympy.Expr | None = None
    rows: int | None = None
    columns: Mapping[int | None, sympy.Expr] = dataclasses.field(default_factory=dict)


class InputSpecs:
    """The inputs of a captured program.

    Args:
        captured: The model.

    Attributes:
        inputs: The inputs of the ONNX model, in order.
        flat: The flattened example inputs, constants included.
        sizes: The dynamic dimensions and their allowed sizes.
    """

    def __init__(self, captured: Captured) -> None:
        program = captured.program
        self._tree = program.call_spec.in_spec
        self.flat = self._flatten(captured.args, captured.kwargs)
        values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
        user = [spec.arg for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
        names, rows, columns = iter(captured.input_names), index_ranges(program), index_columns(program)
        same = _declared_equal(captured.dimension_names)
        self.inputs: list[_Input] = []
        for position, argument in enumerate(user):
            value, example = values.get(argument.name), self.flat[position]
            if isinstance(argument, SymIntArgument):
                self.inputs.append(_Input(next(names), position, example, (), _expression(value, same)))
            elif isinstance(argument, TensorArgument):
                shape = tuple(_expression(size, same) for size in (example.shape if value is None else value.shape))
                counted = {key: _expression(size, same) for key, size in columns.get(argument.name, {}).items()}
                self.inputs.append(
                    _Input(next(names), position, example, shape, None, rows.get(argument.name), counted)
                )
        ranges: dict[str, Any] = {}
        for symbol, limits in program.range_constraints.items():
            name = str(same.get(str(symbol), symbol))
            ranges[name] = ranges[name] & limits if name in ranges else limits
        self.sizes = Sizes(ranges, self._observed())

    def _flatten(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        # Keyword arguments are flattened in the order of the program, not of the caller.
        order = list(self._tree.child(1).context or ())
        ordered = {key: kwargs[key] for key in order if key in kwargs}
        leaves: list[Any] = torch.utils._pytree.tree_flatten((tuple(args), ordered or dict(kwargs)))[0]
        return leaves

    def arguments(self, flat: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Flattened inputs as the arguments of the user's module; every tensor is a copy."""
        copies = [value.clone() if isinstance(value, torch.Tensor) else value for value in flat]
        args, kwargs = torch.utils._pytree.tree_unflatten(copies, self._tree)
        return tuple(args), dict(kwargs)

    def feeds(self, flat: Sequence[Any]) -> dict[str, np.ndarray]:
        """Flattened inputs as the ONNX model takes them."""
        return {item.name: to_numpy(flat[item.position]) for item in self.inputs}

    def _observed(self) -> list[tuple[sympy.Expr, int]]:
        pairs: list[tuple[sympy.Expr, int]] = []
        for item in self.inputs:
            if item.symbol is not None:
                pairs.append((item.symbol, int(item.example)))
            elif isinstance(item.example, torch.Tensor):
                pairs += zip(item.shape, item.example.shape, strict=True)
        return pairs

    def elements(self, sizes: Mapping[str, int]) -> int:
        """The number of elements of all inputs at these sizes of the dynamic dimensions, by symbol."""
        return sum(math.prod(self.sizes.value(size, sizes) for size in item.shape) for item in self.inputs)

    def fresh(self, sizes: Mapping[str, int], seed: int, scale: int) -> list[Any]:
        """Fresh inputs, flattened, constants as in the example.

        Args:
            sizes: The size of every dynamic dimension, by symbol.
            seed: The same seed gives the same inputs.
            scale: How far the values may differ from the example's: a constant of :mod:`opbridge.proof.verify.fresh`.
        """
        flat = list(self.flat)
        for number, item in enumerate(self.inputs):
            random = np.random.default_rng([seed % 2**32, number, *(int(size) % 2**32 for size in sizes.values())])
            if item.symbol is not None:
                flat[item.position] = self.sizes.value(item.symbol, sizes)
            else:
                shape = tuple(self.sizes.value(size, sizes) for size in item.shape)
                counts = {column: self._count(size, sizes) for column, size in item.columns.items()}
                values = fresh_tensor(item.example, shape, random, scale, item.rows, counts)
                size = self._longest(item.example) if scale == LENGTHS else None
                if size is not None:
                    values = lengths_up_to(values, self.sizes.base[size], sizes[size], random)
                flat[item.position] = values
        return flat

    def with_indices_of(self, flat: Sequence[Any], changed: Sequence[Any]) -> list[Any]:
        """Changed inputs with the columns of the unchanged ones that are indices: an operator may not check them."""
        kept = list(changed)
        for item in self.inputs:
            if OFFSETS in item.columns or None in item.columns:
                kept[item.position] = flat[item.position]
            elif item.columns:
                columns = list(item.columns)
                kept[item.position] = kept[item.position].clone()
                kept[item.position][..., columns] = flat[item.position][..., columns]
        return kept

    def _longest(self, example: torch.Tensor) -> str | None:
        """The dynamic size that is the maximum of positive integers; None if there is none."""
        if example.is_floating_point() or example.is_complex() or not example.numel():
            return None
        low, high = (int(value) for value in (to_numpy(example).min(), to_numpy(example).max()))
        return next((name for name, size in self.sizes.base.items() if size == high > 1 and low > 0), None)

    def _count(self, size: sympy.Expr, sizes: Mapping[str, int]) -> int | None:
        """A size; None if the inputs do not determine it."""
        known = all(str(symbol) in sizes for symbol in size.free_symbols)
        return self.sizes.value(size, sizes) if known else None

    def resized(self, feeds: Mapping[str, np.ndarray], sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
        """Arrays cut to smaller sizes of the dynamic dimensions."""
        found: dict[str, np.ndarray] = {}
        for item in self.inputs:
            if item.symbol is not None:
                found[item.name] = np.asarray(self.sizes.value(item.symbol, sizes), np.int64)
            else:
                corner = tuple(slice(0, self.sizes.value(size, sizes)) for size in item.shape)
                found[item.name] = np.ascontiguousarray(feeds[item.name][corner]) if corner else feeds[item.name]
        return found

    def given(self, arrays: Mapping[str, np.ndarray]) -> tuple[list[Any], dict[str, int]]:
        """The user's own arrays, by ONNX input name, as flattened inputs, and their dynamic sizes.

        Raises:
            InputError: A name is missing or unknown, or a dtype, rank or fixed size does not fit.
        """
        expected = [item.name for item in self.inputs]
        wrong = [f"{name!r} is missing" for name in expected if name not in arrays]
        wrong += [f"there is no input {name!r}" for name in arrays if name not in expected]
        if wrong:
            raise InputError(
                f"The inputs to verify with don't match the model's: {'; '.join(wrong)}.",
                fix=f"give one array for each of: {', '.join(expected)}.",
            )
        flat = list(self.flat)
        for item in self.inputs:
            flat[item.position] = _given_value(item, np.asarray(arrays[item.name]))
        observed = [
            pair
            for item in self.inputs
            for pair in (
                zip(item.shape, flat[item.position].shape, strict=True)
                if item.symbol is None
                else [(item.symbol, flat[item.position])]
            )
        ]
        return flat, self.sizes.solve(observed)


def _given_value(item: _Input, array: np.ndarray) -> Any:
    example = to_numpy(item.example)
    if array.dtype.kind == "V" and array.dtype.itemsize == example.dtype.itemsize and array.dtype.fields is None:
        array = array.view(example.dtype)  # NumPy stores bfloat16 and float8 as raw bytes
    if array.dtype != example.dtype:
        raise InputError(
            f"Input {item.name!r} takes dtype {example.dtype.name}, but got {array.dtype.name}.",
            fix=f"convert it, if that is what you mean: array.astype({example.dtype.name!r}).",
        )
    fixed = [int(size) if size.is_Integer else None for size in item.shape]
    fixed += [2] * (example.ndim - len(fixed))
    fits = len(fixed) == array.ndim and all(f in (None, size) for f, size in zip(fixed, array.shape, strict=True))
    if not fits:
        shape = ", ".join(str(size) for size in item.shape)
        raise InputError(
            f"Input {item.name!r} takes shape [{shape}], but got {list(array.shape)}.",
            fix="pass an array of that shape, or export the model with that dimension dynamic.",
        )
    return to_torch(array, item.example)


_DERIVED = re.compile(r"(?:(\d+)\*)?(\w+)(?: ([+-]) (\d+))?")
"""The dimensions that torch.export derives from others: ``6*frames - 12``."""


def _declared_equal(names: Mapping[str, str]) -> dict[str, sympy.Expr]:
    """For each symbol what the user declared it to be equal to: the first symbol of its name, or ``6*frames - 12``."""
    first: dict[str, sympy.Expr] = {}
    for symbol, name in names.items():
        first.setdefault(name, sympy.Symbol(symbol, integer=True))
    found = {}
    for symbol, name in names.items():
        match = _DERIVED.fullmatch(name)
        factor, root, sign, offset = match.groups() if match is not None else (None, name, None, None)
        is_derived = root != name and root in first
        found[symbol] = (
            first[root] * int(factor or 1) + int(f"{sign or '+'}{offset or 0}") if is_derived else first[name]
        )
    return found


def _expression(size: Any, same: Mapping[str, sympy.Expr]) -> sympy.Expr:
    """A size as an expression; torch's SymInt is printed as one.

    Args:
        size: The size.
        same: What to write in place of each symbol, if it is something else.
    """
    if isinstance(size, int):
        return sympy.Integer(size)
    text = str(size)
    names = {name: same.get(name, sympy.Symbol(name, integer=True)) for name in _words(text)}
    return sympy.sympify(text, locals=names)


def _words(text: str) -> set[str]:
    cleaned = "".join(character if character.isalnum() or character == "_" else " " for character in text)
    return {word for word in cleaned.split() if word[0].islower() and any(character.isdigit() for character in word)}
