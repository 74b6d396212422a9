"""A call of an autograd.Function with a ``symbolic``, as a torch operator whose inputs are the tensors of the call.

The other arguments (lists, modules, callables, dtypes, None) are stored outside the operator and passed to ``forward``
and ``symbolic`` unchanged. The operator is functional: an input that ``forward`` modifies in place is copied first, and
the caller writes the result back.
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

from opbridge.capture.constants import known_value
from opbridge.catalog.declare.spec import OpSpec
from opbridge.legacy.capture_state import is_capturing, paused
from opbridge.legacy.function_fakes import fake_outputs
from opbridge.legacy.symbolic_call import emit
from opbridge.legacy.symbolic_method import symbolic_for
from opbridge.torch_graph import internals as torch_internals
from opbridge.torch_graph.mutations import noting_mutations
from opbridge.torch_graph.sources import source_of_function

__all__ = ["NAMESPACE", "FunctionCall", "function_of", "operator_for"]

NAMESPACE = "autograd_function"
"""The torch namespace of these operators."""

_SCALARS = {torch.SymInt: "SymInt", torch.SymFloat: "float", torch.SymBool: "bool"}


_LOST_CHANGE = (
    "forward modifies an input in place and does not return it: later uses of this input get the unmodified value, "
    "because symbolic can't return the modified one"
)


@dataclasses.dataclass(frozen=True)
class _Input:
    """A placeholder for the ``index``-th input of the operator among the arguments of the call."""

    index: int


class _Context(torch.autograd.function.FunctionCtx):
    """The ``ctx`` of ``forward``: it stores saved tensors, and no gradient is computed."""

    to_save: tuple[torch.Tensor, ...] = ()

    def __init__(self, count: int) -> None:
        self.needs_input_grad = (False,) * count

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The tensors passed to ``save_for_backward``."""
        return tuple(self.to_save)


@dataclasses.dataclass
class _Outputs:
    """The structure of the values that ``forward`` returned.

    Attributes:
        leaves: The flattened return value, in which each tensor is replaced by an ``_Input`` with its number.
        structure: The pytree structure of the return value.
        of_inputs: The position of the input that a returned tensor is, by the number of the tensor.
        count: The number of tensors.
    """

    leaves: list[Any]
    structure: Any
    of_inputs: dict[int, int]
    count: int


class FunctionCall:
    """An autograd.Function with those arguments of a call that are not tensors.

    Attributes:
        function: The autograd.Function.
        symbolic: Its ``symbolic``, as it was when the model was captured.
        target: The name of the operator, such as ``"autograd_function::MyClamp"``.
        source: ``file:line`` of ``symbolic``.
        mutates: The positions of the inputs that ``forward`` modifies in place.
        notes: The remarks for the user about this call.
        contents: The contents of the inputs that Python knows, by position.
        reads: Whether the shapes of the results depend on these contents.
    """

    def __init__(
        self, function: Any, symbolic: Callable[..., Any], forward: Callable[..., Any], arguments: _Arguments
    ) -> None:
        self.function = function
        self.symbolic = symbolic
        self.arguments = arguments
        self.mutates: frozenset[int] = frozenset()
        self.notes: tuple[str, ...] = ()
        self.contents: dict[int, torch.Tensor] = {}
        self.reads = False
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
        """The qualified name of the Function."""
        return str(self.function.__qualname__)

    def spec(self) -> OpSpec:
        """Return the mapping of the operator to the nodes that ``symbolic`` adds."""
        return OpSpec(self.target, "translate", self._translate, source=self.source)

    def outputs(self, values: Sequence[torch.Tensor], inputs: Sequence[Any], ctx: Any) -> Any:
        """Return the results of the operator in the structure that ``forward`` returns.

        A result that is an input modified in place is written back into that input.
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
        """Run the user's ``forward`` on these tensors, with the bridge paused."""
        args, kwargs = self.arguments.fill(inputs)
        # Optimized for the sizes of its first calls, a scripted function would fix them.
        with paused(), torch.no_grad(), torch.jit.optimized_execution(False):
            if not self.arguments.takes_ctx or not _accepts(self._forward, len(args) + 1, kwargs):
                return self._forward(*args, **kwargs)
            return self._forward(_Context(len(args)), *args, **kwargs)

    def _compute(self, *inputs: Any) -> list[torch.Tensor]:
        own = [value.clone() if i in self.mutates else value for i, value in enumerate(inputs)]
        return [_fresh(value, own) for value in self._flattened(self.run_forward(own), own)]

    def _fake(self, *inputs: Any) -> list[torch.Tensor]:
        key = _static_key(inputs)
        if is_capturing():
            self._results.clear()  # The result of forward may depend on state that the user has changed since.
        elif key in self._results:
            return [torch.empty(shape, dtype=dtype, device=device) for shape, dtype, device in self._results[key]]
        values = self._fake_results(inputs, watched=is_capturing())
        if key is not None and not torch_internals.symbols_of(values):
            self._results[key] = [(tuple(value.shape), value.dtype, value.device) for value in values]
        return [torch.empty_like(value, memory_format=torch.contiguous_format) for value in values]

    def _fake_results(self, inputs: Sequence[Any], watched: bool) -> list[torch.Tensor]:
        """Run ``forward`` on fake tensors; if ``watched``, record the inputs that it modifies in place."""
        if not watched:
            return self._flattened(fake_outputs(self, inputs)[0], inputs)
        with noting_mutations(inputs) as changed:
            returned, notes = fake_outputs(self, inputs)
        values = self._flattened(returned, inputs)
        assert self._outputs is not None
        self.mutates = frozenset(changed)
        if self.mutates - set(self._outputs.of_inputs.values()):
            notes = (*notes, _LOST_CHANGE)
        self.notes = notes
        return values

    def _flattened(self, returned: Any, inputs: Sequence[Any]) -> list[torch.Tensor]:
        """Return the tensors that ``forward`` returned, and store the structure for :meth:`outputs`."""
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
    """The arguments of a call without its tensors and dynamic numbers.

    Attributes:
        leaves: The flattened arguments, in which each tensor and dynamic number is replaced by an ``_Input``.
        structure: The pytree structure of ``(args, kwargs)``; lists and dicts without inputs are leaves.
        kinds: The type of each input in the schema of the operator.
        takes_ctx: Whether ``forward`` is called with a context.
    """

    leaves: tuple[Any, ...]
    structure: Any
    kinds: tuple[str, ...]
    takes_ctx: bool

    def fill(self, inputs: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return ``(args, kwargs)`` with these inputs."""
        leaves = [inputs[leaf.index] if isinstance(leaf, _Input) else leaf for leaf in self.leaves]
        args, kwargs = tree_unflatten(leaves, self.structure)
        return tuple(args), kwargs

    @property
    def key(self) -> tuple[Any, ...]:
        """The identity of a call: equal numbers and strings, and the same objects."""
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
    # A tensor inside a list is an input only if it was computed in the graph; otherwise it is a constant.
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
    """Copy lists and dicts, but not their contents, because the user may change them after the call."""
    if type(leaf) in (list, tuple):
        return type(leaf)(map(_copied, leaf))
    return {key: _copied(value) for key, value in leaf.items()} if type(leaf) is dict else leaf


def _static_key(inputs: Sequence[Any]) -> tuple[Any, ...] | None:
    """Return the key of a cached result; None if an input has a dynamic size."""
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
    """Return the operator of a call and its inputs. Equal calls share one operator.

    Args:
        function: The autograd.Function.
        forward: The ``forward`` of the Function, as found on the class.
        args: The positional arguments of the call.
        kwargs: The keyword arguments of the call.
        takes_ctx: Whether ``forward`` is called with a context.
    """
    arguments, inputs = _split(args, kwargs, takes_ctx)
    symbolic = symbolic_for(function)  # For a classmethod, each look-up returns a new object.
    assert symbolic is not None
    contents = _known_contents(inputs)
    key = (function, id(getattr(symbolic, "__func__", symbolic)), *arguments.key)
    if key in _calls and _calls[key].reads:
        key = (
            *key,
            *((position, value.dtype, value.shape, str(value.tolist())) for position, value in contents.items()),
        )
    if key not in _calls:
        _calls[key] = call = FunctionCall(function, symbolic, forward, arguments)
        _by_target[call.target] = call
    _calls[key].contents = contents
    return _calls[key], inputs


def _known_contents(inputs: Sequence[Any]) -> dict[int, torch.Tensor]:
    found = {i: known_value(value) for i, value in enumerate(inputs) if isinstance(value, torch.Tensor)}
    return {position: value for position, value in found.items() if value is not None}


def function_of(target: Any) -> FunctionCall | None:
    """Return the call that an operator of a captured graph represents; None for any other operator."""
    if isinstance(target, torch._ops.OpOverload) and target.namespace == NAMESPACE:
        return _by_target.get(target.name())
    return None


def _new_name(name: str) -> str:
    plain = re.sub(r"\W", "_", name)
    return plain if f"{NAMESPACE}::{plain}" not in _by_target else f"{plain}_{next(_numbers)}"


def _accepts(forward: Callable[..., Any], count: int, kwargs: Mapping[str, Any]) -> bool:
    """Return whether ``forward`` accepts this number of arguments; one without a ``ctx`` parameter does not."""
    try:
        inspect.signature(forward).bind(*[None] * count, **kwargs)
    except TypeError:
        return False
    except ValueError:  # A forward written in C has no signature.
        return True
    return True


def _fresh(value: torch.Tensor, inputs: Sequence[Any]) -> torch.Tensor:
    """Return the tensor, contiguous and in its own memory."""
    value = value.contiguous() if value.layout is torch.strided else value
    shared = any(
        isinstance(given, torch.Tensor) and given.untyped_storage().data_ptr() == value.untyped_storage().data_ptr()
        for given in inputs
    )
    return value.clone() if shared else value
