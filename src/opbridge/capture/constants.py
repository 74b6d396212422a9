"""Tensors whose contents Python may know during a capture, although a captured tensor has none.

Parameters and buffers are constants of the ONNX model, and so is what ``forward`` computes from them and from Python's
numbers alone. A read of such a tensor (``if self.ready:``, ``torch.arange(4).tolist()``) is answered from copies, which
are computed beside the captured program. So is one that torch itself makes, of a tensor that stands for a size
(``F.pad(x, (0, self.padding))``). A tensor may also contain sizes of the inputs (``torch.tensor(x.shape[2:])``).
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from opbridge.capture.size_tensors import Elements, computed_elements, elements_read
from opbridge.errors import CaptureError
from opbridge.findings.buffer_mutation import mutated_buffers
from opbridge.torch_graph.internals import is_fake
from opbridge.torch_graph.random_numbers import own_random_numbers
from opbridge.torch_graph.subgraphs import outside_capture, tracer

__all__ = ["Constants", "UnknownContentsError", "known_value"]

_MOST_ELEMENTS = 1024

_READS = "item tolist numpy __array__ __bool__ __int__ __float__ __index__ __complex__ __contains__"
_COMPARISONS = "equal allclose is_nonzero"
_OF_UNKNOWN_SIZE = "nonzero argwhere masked_select unique unique_consecutive repeat_interleave bincount"
_ANSWERED = frozenset(
    getattr(owner, name)
    for owner, names in ((Tensor, _READS), (Tensor, _COMPARISONS), (torch, _COMPARISONS))
    for name in (*names.split(), *_OF_UNKNOWN_SIZE.split())
    if hasattr(owner, name)
)
"""The functions whose result, or whose result's size, depends on the contents of tensors."""

_CREATIONS = "zeros ones full empty rand randn eye"
_SHAPES = "view reshape expand repeat tile narrow split chunk roll unflatten new_zeros new_ones new_full"
_SIZES = {
    **{getattr(torch, name): 0 for name in _CREATIONS.split()},
    **{getattr(Tensor, name): 1 for name in _SHAPES.split()},
    **{getattr(torch, name): 1 for name in _SHAPES.split() if hasattr(torch, name)},
    torch.arange: 0,
    torch.linspace: 2,
    torch.nn.functional.pad: 1,
    torch.nn.functional.interpolate: 1,
}
"""Functions that take tensors of rank 0 as sizes, and the position of the first argument that may be one."""

_NOT_SIZES = ("input", "tensor")

_PLAIN = (Tensor, torch.nn.Parameter)

_active: contextvars.ContextVar[Constants | None] = contextvars.ContextVar("constants", default=None)


class UnknownContentsError(CaptureError):
    """The shapes of an operator's results depend on contents that Python may know."""

    def to_dict(self) -> dict[str, object]:
        """The error as JSON data, as that of any other failed capture."""
        return {**super().to_dict(), "error": CaptureError.__name__}


def known_value(tensor: Tensor) -> Tensor | None:
    """The contents of a tensor of the capture that is running; None if they are not known."""
    constants = _active.get()
    known = constants.known(tensor) if constants is not None else None
    return None if known is None else known.copy


@dataclasses.dataclass
class _Sizes:
    """A tensor of the capture whose elements are known as numbers of the graph, until it is written into.

    Attributes:
        tensor: The tensor.
        elements: The numbers.
        version: How often the tensor had been written into.
    """

    tensor: Tensor
    elements: Elements
    version: int


@dataclasses.dataclass
class _Known:
    """A tensor of the capture whose contents are known.

    Attributes:
        tensor: The tensor.
        copy: A tensor with its contents, outside of the capture.
        names: The parameters and buffers that the contents are computed from.
        version: How often the tensor had been written into when the copy was made.
        tracer: The tracer of the program, or of the branch, in which the tensor was made.
    """

    tensor: Tensor
    copy: Tensor
    names: frozenset[str]
    version: int
    tracer: Any


class Constants(TorchFunctionMode):
    """Computes small constants beside a capture, and answers Python's reads of them.

    Args:
        module: The module. It must have its weights where :meth:`answering` begins.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self._module = module
        self._contents: dict[str, Tensor] = {}
        self._read: set[str] = set()
        self._known: dict[int, _Known | None] = {}
        self._sizes: dict[int, _Sizes] = {}
        self._first: Any = None

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """Answer reads inside the block."""
        self._known, self._sizes, self._first = {}, {}, None
        self._contents = {
            name: _copy(tensor)
            for name, tensor in (*self._module.named_parameters(), *self._module.named_buffers())
            if not tensor.is_meta and _is_small(tensor)
        }
        self._read.clear()
        token = _active.set(self)
        try:
            with self:
                yield
        finally:
            _active.reset(token)
            self._known, self._sizes = {}, {}

    def are_constant_in(self, program: torch.export.ExportedProgram) -> bool:
        """Whether the program changes none of the buffers that were read."""
        return self._read.isdisjoint(mutated_buffers(program))

    def known(self, tensor: Tensor) -> _Known | None:
        """What is known of a tensor; None if it depends on the model's inputs, or is large."""
        self._name_weights()
        known = self._known.get(id(tensor))
        if known is not None:
            return known if _version(tensor) == known.version else None
        if id(tensor) in self._known or is_fake(tensor) or type(tensor) not in _PLAIN or not _is_small(tensor):
            return None
        try:
            tensor.data_ptr()  # Tensors of torch.func have no memory of their own.
        except RuntimeError:
            return None
        return self._note(tensor, _copy(tensor), frozenset())

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, torch._ops.OperatorBase) or tracer() is None:
            return func(*args, **kwargs)
        given = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        found = {id(tensor): self.known(tensor) for tensor in given}
        known = {key: one for key, one in found.items() if one is not None}
        is_constant = len(known) == len(found) and not _has_symbols((args, kwargs))
        names = frozenset().union(*(one.names for one in known.values()))
        if is_constant and given and func in _ANSWERED:
            self._read |= names
            return _copied(func, args, kwargs, known)
        if given and func in (Tensor.item, Tensor.tolist) and (own := self._elements(given[0])) is not None:
            read = elements_read(func, own, given[0])
            if read is not None:
                return read
        if func in _SIZES:
            args, kwargs = self._with_numbers(_SIZES[func], args, kwargs, known)
        result = func(*args, **kwargs)
        self._note_sizes(func, args, kwargs, result)
        if is_constant and _is_tensors(result):
            with contextlib.suppress(Exception):  # What can't be computed beside the capture is not known.
                copies = pytree.tree_leaves(_copied(func, args, kwargs, known))
                for tensor, copy in zip(pytree.tree_leaves(result), copies, strict=True):
                    self._note(tensor, copy if given else _copy(copy), names)
        return result

    def _elements(self, tensor: Tensor) -> Elements | None:
        """The elements of a tensor of sizes; None if they are not known."""
        own = self._sizes.get(id(tensor))
        if own is not None:
            return own.elements if own.version == _version(tensor) else None
        known = self.known(tensor)
        is_used = known is not None and not known.names and not known.copy.is_floating_point()
        return np.asarray(known.copy.tolist(), object) if known is not None and is_used else None

    def _note_sizes(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        for tensor, elements in computed_elements(func, args, kwargs, result, self._elements):
            if any(isinstance(number, torch.SymInt) for number in elements.flat):
                self._sizes[id(tensor)] = _Sizes(tensor, elements, _version(tensor))

    def _with_numbers(
        self, first: int, args: tuple[Any, ...], kwargs: dict[str, Any], known: Mapping[int, _Known]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call; from the position ``first``, constants of rank 0 are numbers."""

        def number(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor) or leaf.dim():
                return leaf
            if id(leaf) in self._sizes and (elements := self._elements(leaf)) is not None:
                return elements.flat[0]
            one = known.get(id(leaf))
            if one is None or one.copy.is_floating_point() or one.copy.is_complex():
                return leaf
            self._read |= one.names
            return one.copy.item()

        named = {key: one if key in _NOT_SIZES else pytree.tree_map(number, one) for key, one in kwargs.items()}
        return (*args[:first], *pytree.tree_map(number, args[first:])), named

    def _note(self, tensor: Tensor, copy: Tensor, names: frozenset[str]) -> _Known | None:
        """Note what a tensor contains, unless a branch, which may not run, has written into it."""
        before, current = self._known.get(id(tensor)), tracer()
        written_by_branch = before is not None and before.tracer is not current
        is_alike = _is_small(tensor) and tensor.shape == copy.shape and tensor.dtype == copy.dtype
        is_copy = is_alike and not written_by_branch
        known = _Known(tensor, copy, names, _version(tensor), current) if is_copy else None
        self._known[id(tensor)] = known
        return known

    def _name_weights(self) -> None:
        """Note the parameters and buffers, in whose place torch.export puts other tensors for a while."""
        first = self._weight(next(iter(self._contents))) if self._contents else None
        if self._first is first:
            return
        self._first = first
        for name, contents in self._contents.items():
            self._note(self._weight(name), _copy(contents), frozenset({name}))

    def _weight(self, name: str) -> Any:
        module, _, attribute = name.rpartition(".")
        return getattr(self._module.get_submodule(module), attribute)


def _copied(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], known: Mapping[int, _Known]) -> Any:
    """Call a function with the copies of its tensors, outside of the capture."""

    def copy(leaf: Any) -> Any:
        return known[id(leaf)].copy if isinstance(leaf, Tensor) else leaf

    copies, named = pytree.tree_map(copy, (args, kwargs))
    with outside_capture(), torch.no_grad(), own_random_numbers():
        before = torch.get_rng_state()
        result = func(*copies, **named)
        if "empty" in func.__name__ or not torch.equal(before, torch.get_rng_state()):
            raise ValueError("The result has other contents each time.")
        return result


def _copy(tensor: Tensor) -> Tensor:
    with outside_capture():
        return tensor.detach().clone()


def _is_small(tensor: Tensor) -> bool:
    is_plain = not is_lazy(tensor) and tensor.layout is torch.strided and not tensor.is_nested
    return is_plain and all(type(size) is int for size in tensor.shape) and tensor.numel() <= _MOST_ELEMENTS


def _is_tensors(result: Any) -> bool:
    leaves = pytree.tree_leaves(result)
    return bool(leaves) and all(isinstance(leaf, Tensor) and _is_small(leaf) for leaf in leaves)


def _has_symbols(values: Any) -> bool:
    """Whether values have numbers that are known at run time only; the bounds of a slice may also be tensors."""
    symbols = (torch.SymInt, torch.SymFloat, torch.SymBool)
    for leaf in pytree.tree_leaves(values):
        bounds = (leaf.start, leaf.stop, leaf.step) if isinstance(leaf, slice) else ()
        if isinstance(leaf, symbols) or any(isinstance(bound, (*symbols, Tensor)) for bound in bounds):
            return True
    return False


def _version(tensor: Tensor) -> int:
    """How often a tensor has been written into; -1 if torch does not count it."""
    return -1 if tensor.is_inference() else tensor._version
