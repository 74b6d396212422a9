"""One call of an autograd.Function with a ``symbolic``, as an operator of torch that takes only its tensors.

The rest of the call (lists, modules, callables, dtypes, None) is kept beside the operator and given to ``forward`` and
``symbolic`` as it is. The operator is functional: an input that ``forward`` changes in place is copied first, and the
caller writes the result back.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from opbridge.catalog.declare.spec import OpSpec
from opbridge.legacy.function_fakes import fake_outputs
from opbridge.legacy.symbolic_call import emit
from opbridge.torch_graph import internals as torch_internals
from opbridge.torch_graph.sources import source_of_function

__all__ = ["NAMESPACE", "FunctionCall", "function_of", "operator_for"]

NAMESPACE = "autograd_function"
"""The namespace of these operators in torch."""

_SCALARS = {torch.SymInt: "SymInt", torch.SymFloat: "float", torch.SymBool: "bool"}


_LOST_CHANGE = (
    "forward changes an input in place that it does not return: what uses it afterwards gets the unchanged one, "
    "because symbolic can't give the other"
)


@dataclasses.dataclass(frozen=True)
class _Input:
    """Stands for the ``index``-th input of the operator among the arguments of the call."""

    index: int


class _Context(torch.autograd.function.FunctionCtx):
    """What ``forward`` gets as its ``ctx``: notes what it is told, and differentiates nothing."""

    to_save: tuple[torch.Tensor, ...] = ()

    def __init__(self, count: int) -> None:
        self.needs_input_grad = (False,) * count

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What ``save_for_backward`` was given."""
        return tuple(self.to_save)


@dataclasses.dataclass
class _Outputs:
    """What ``forward`` returned: the tensors in order, and how to put them back.

    Attributes:
        leaves: Everything returned, flattened; a tensor's place is taken by its number as an ``_Input``.
        structure: Of the flattened outputs.
        of_inputs: By number of the tensor, the input that it is.
    """

    leaves: list[Any]
    structure: Any
    of_inputs: dict[int, int]
    count: int


class FunctionCall:
    """A Function with the arguments of one call that are no tensors.

    Attributes:
        function: The autograd.Function.
        symbolic: Its ``symbolic``, as it was when the model was captured.
        target: The operator's name, ``"autograd_function::MyClamp"``.
        source: ``file:line`` of ``symbolic``.
        mutates: The inputs that ``forward`` changes in place.
        notes: What there is to say about it.
    """

    def __init__(self, function: Any, forward: Callable[..., Any], arguments: _Arguments) -> None:
        self.function = function
        self.symbolic = function.symbolic
        self.arguments = arguments
        self.mutates: frozenset[int] = frozenset()
        self.notes: tuple[str, ...] = ()
        self.source = str(source_of_function(inspect.unwrap(self.symbolic)) or "")
        self._forward = forward
        self._outputs: _Outputs | None = None
        self._results: dict[Any, list[tuple[tuple[int, ...], torch.dtype, torch.device]]] = {}
        name = _new_name(function.__name__)
        self.target = f"{NAMESPACE}::{name}"
        self._library = torch.library.Library(NAMESPACE, "FRAGMENT")
        parameters = ", ".join(f"{kind} input_{i}" for i, kind in enumerate(arguments.kinds))
        self._library.define(f"{name}({parameters}) -> Tensor[]")
        self._library.impl(name, self._compute, "CompositeExplicitAutograd")
        torch.library.register_fake(self.target, self._fake, lib=self._library)
        self.overload = getattr(getattr(torch.ops, NAMESPACE), name).default

    @property
    def display_name(self) -> str:
        """The Function's own name, with what it is nested in."""
        return str(self.function.__qualname__)

    def spec(self) -> OpSpec:
        """The mapping of the operator to what ``symbolic`` builds."""
        return OpSpec(self.target, "translate", self._translate, source=self.source)

    def outputs(self, values: Sequence[torch.Tensor], inputs: Sequence[Any], ctx: Any) -> Any:
        """What the user's call returns: the operator's results in the structure that ``forward`` gave them.

        A result that is an input changed in place is written back into that input.
        """
        made = self._outputs
        assert made is not None
        leaves = []
        for leaf in made.leaves:
            if not isinstance(leaf, _Input):
                leaves.append(leaf)
            elif made.of_inputs.get(leaf.index) in self.mutates:
                changed = inputs[made.of_inputs[leaf.index]]
                changed.copy_(values[leaf.index])
                if ctx is not None:
                    ctx.mark_dirty(changed)
                leaves.append(changed)
            else:
                leaves.append(values[leaf.index])
        return tree_unflatten(leaves, made.structure)

    def run_forward(self, inputs: Sequence[Any]) -> Any:
        """Run the user's ``forward`` on these tensors, and nothing of the bridge inside it."""
        from opbridge.legacy.functions import paused

        args, kwargs = self.arguments.fill(inputs)
        with paused(), torch.no_grad():
            if not self.arguments.takes_ctx or not _accepts(self._forward, len(args) + 1, kwargs):
                return self._forward(*args, **kwargs)
            return self._forward(_Context(len(args)), *args, **kwargs)

    def _compute(self, *inputs: Any) -> list[torch.Tensor]:
        own = [value.clone() if i in self.mutates else value for i, value in enumerate(inputs)]
        return [_fresh(value, own) for value in self._flattened(self.run_forward(own), own)]

    def _fake(self, *inputs: Any) -> list[torch.Tensor]:
        from opbridge.legacy.functions import is_capturing

        key = _static_key(inputs)
        if is_capturing():
            self._results.clear()  # What forward does may depend on what the user has changed since.
        elif key in self._results:
            return [torch.empty(shape, dtype=dtype, device=device) for shape, dtype, device in self._results[key]]
        values = self._fake_results(inputs, watched=is_capturing())
        if key is not None and not torch_internals.symbols_of(values):
            self._results[key] = [(tuple(value.shape), value.dtype, value.device) for value in values]
        return [torch.empty_like(value, memory_format=torch.contiguous_format) for value in values]

    def _fake_results(self, inputs: Sequence[Any], watched: bool) -> list[torch.Tensor]:
        """Run ``forward`` on fake tensors; if ``watched``, note what it changes in place."""
        if not watched:
            return self._flattened(fake_outputs(self, inputs)[0], inputs)
        with torch_internals.noting_mutations(inputs) as changed:
            returned, notes = fake_outputs(self, inputs)
        values = self._flattened(returned, inputs)
        assert self._outputs is not None
        self.mutates = frozenset(changed)
        if self.mutates - set(self._outputs.of_inputs.values()):
            notes = (*notes, _LOST_CHANGE)
        self.notes = notes
        return values

    def _flattened(self, returned: Any, inputs: Sequence[Any]) -> list[torch.Tensor]:
        """The tensors among what ``forward`` returned; how to put them back is kept for :meth:`outputs`."""
        leaves, structure = tree_flatten(returned)
        positions = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        values = [leaves[i] for i in positions]
        for number, position in enumerate(positions):
            leaves[position] = _Input(number)
        same = {n: i for n, value in enumerate(values) for i, given in enumerate(inputs) if value is given}
        self._outputs = _Outputs(leaves, structure, same, len(values))
        return values

    def _translate(self, *inputs: Any) -> tuple[Any, ...]:
        args, kwargs = self.arguments.fill(inputs)
        count = self._outputs.count if self._outputs is not None else None
        made = emit(self.symbolic, args, kwargs, name=self.display_name, results=count)
        return made if isinstance(made, tuple) else (made,)


@dataclasses.dataclass(frozen=True)
class _Arguments:
    """The arguments of a call, its tensors and dynamic numbers taken out.

    Attributes:
        leaves: Everything else, with an ``_Input`` in each place that was emptied.
        structure: Of the flattened ``(args, kwargs)``; lists and dicts that hold no input are leaves.
        kinds: The type of each input in the operator's schema.
        takes_ctx: Whether ``forward`` is called with a context.
    """

    leaves: tuple[Any, ...]
    structure: Any
    kinds: tuple[str, ...]
    takes_ctx: bool

    def fill(self, inputs: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """``(args, kwargs)`` with these inputs."""
        leaves = [inputs[leaf.index] if isinstance(leaf, _Input) else leaf for leaf in self.leaves]
        args, kwargs = tree_unflatten(leaves, self.structure)
        return tuple(args), kwargs

    @property
    def key(self) -> tuple[Any, ...]:
        """What makes two calls the same: equal numbers and strings, and the same objects."""
        return (tuple(map(_identity, self.leaves)), str(self.structure), self.kinds, self.takes_ctx)


def _identity(leaf: Any) -> Any:
    if isinstance(leaf, _Input):
        return leaf
    if type(leaf) in (list, tuple):
        return (type(leaf), *map(_identity, leaf))
    if type(leaf) is dict:
        return (dict, *((key, _identity(value)) for key, value in leaf.items()))
    return type(leaf), repr(leaf) if type(leaf) in (int, float, bool, str, bytes, type(None)) else id(leaf)


def _is_input(value: Any, nested: bool) -> bool:
    # A tensor inside a list is part of the graph only if it was made there; any other is a constant of the user's.
    if isinstance(value, torch.Tensor):
        return not nested or torch_internals.is_fake(value)
    return isinstance(value, tuple(_SCALARS))


def _holds_input(value: Any) -> bool:
    return any(_is_input(leaf, nested=True) for leaf in tree_flatten(value)[0])


def _split(args: Sequence[Any], kwargs: Mapping[str, Any], takes_ctx: bool) -> tuple[_Arguments, list[Any]]:
    top = {id(value) for value in (*args, *kwargs.values())}
    whole = (list(args), dict(kwargs))
    leaves, structure = tree_flatten(
        whole, is_leaf=lambda v: v is not whole and v is not whole[0] and v is not whole[1] and not _holds_input(v)
    )
    inputs: list[Any] = []
    kinds: list[str] = []
    for position, leaf in enumerate(leaves):
        if _is_input(leaf, nested=id(leaf) not in top):
            leaves[position] = _Input(len(inputs))
            inputs.append(leaf)
            kinds.append("Tensor" if isinstance(leaf, torch.Tensor) else _SCALARS[type(leaf)])
    return _Arguments(tuple(map(_copied, leaves)), structure, tuple(kinds), takes_ctx), inputs


def _copied(leaf: Any) -> Any:
    """A list or dict as it is now, with the same contents: the user may change his own after the call."""
    if type(leaf) in (list, tuple):
        return type(leaf)(map(_copied, leaf))
    return {key: _copied(value) for key, value in leaf.items()} if type(leaf) is dict else leaf


def _static_key(inputs: Sequence[Any]) -> tuple[Any, ...] | None:
    """What the results' shapes depend on, where no size of the inputs is dynamic; None otherwise."""
    found: list[Any] = []
    for value in inputs:
        if not isinstance(value, torch.Tensor) or not all(isinstance(size, int) for size in value.shape):
            return None
        found.append((tuple(value.shape), value.dtype, value.device))
    return tuple(found)


_calls: dict[tuple[Any, ...], FunctionCall] = {}
_by_target: dict[str, FunctionCall] = {}
_numbers = itertools.count(2)


def operator_for(
    function: Any, forward: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], takes_ctx: bool
) -> tuple[FunctionCall, list[Any]]:
    """The operator of a call, and what it is to be called with. Equal calls share one.

    Args:
        function: The autograd.Function.
        forward: Its ``forward``, as found on the class.
        args: The arguments of the call.
        kwargs: Those by keyword.
        takes_ctx: Whether ``forward`` is called with a context.
    """
    arguments, inputs = _split(args, kwargs, takes_ctx)
    symbolic = function.symbolic  # Of a classmethod a new object each time.
    key = (function, id(getattr(symbolic, "__func__", symbolic)), *arguments.key)
    if key not in _calls:
        _calls[key] = call = FunctionCall(function, forward, arguments)
        _by_target[call.target] = call
    return _calls[key], inputs


def function_of(target: Any) -> FunctionCall | None:
    """The call that an operator of a captured graph stands for; None for any other operator."""
    if isinstance(target, torch._ops.OpOverload) and target.namespace == NAMESPACE:
        return _by_target.get(target.name())
    return None


def _new_name(name: str) -> str:
    plain = re.sub(r"\W", "_", name)
    return plain if f"{NAMESPACE}::{plain}" not in _by_target else f"{plain}_{next(_numbers)}"


def _accepts(forward: Callable[..., Any], count: int, kwargs: Mapping[str, Any]) -> bool:
    """Whether a ``forward`` has room for so many arguments; one written without ``ctx`` has not."""
    try:
        inspect.signature(forward).bind(*[None] * count, **kwargs)
    except TypeError:
        return False
    except ValueError:  # A forward written in C shows no signature.
        return True
    return True


def _fresh(value: torch.Tensor, inputs: Sequence[Any]) -> torch.Tensor:
    """The tensor, contiguous and in memory of its own."""
    value = value.contiguous() if value.layout is torch.strided else value
    shared = any(
        isinstance(given, torch.Tensor) and given.untyped_storage().data_ptr() == value.untyped_storage().data_ptr()
        for given in inputs
    )
    return value.clone() if shared else value
