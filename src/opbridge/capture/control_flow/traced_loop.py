"""Loops whose length is known only at run time: the body is traced once, and becomes one ``torch.while_loop``."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from opbridge.capture.control_flow.attributes import Attributes, NoValueBefore
from opbridge.capture.control_flow.conditions import as_tensor, both, condition
from opbridge.capture.control_flow.growing import GrowingLists
from opbridge.capture.control_flow.operands import Operands
from opbridge.capture.control_flow.resized import ResizedTensors
from opbridge.capture.control_flow.rows import Rows
from opbridge.capture.control_flow.site import Site, refuse, refuse_variable
from opbridge.capture.control_flow.state import State, note_operator, notes_unless_raised
from opbridge.capture.control_flow.trees import tree_flatten, tree_unflatten
from opbridge.capture.control_flow.values import (
    ABSENT,
    UNDEFINED,
    Agreement,
    Contents,
    Output,
    is_value,
    refill,
    same_shape,
)
from opbridge.torch_graph.branch_shapes import shapes_of_branches_apart
from opbridge.torch_graph.size_guards import if_data_allow
from opbridge.torch_graph.subgraphs import Subgraph, facts_of_one_path, run_subgraph, trace_subgraph, untracked

__all__ = ["TracedLoop"]

Action = Callable[[], Any]


@dataclasses.dataclass
class _Variable:
    """A variable of a loop, as nested containers of leaves.

    Attributes:
        name: Its name.
        leaves: Its values before the loop.
        structure: The containers.
    """

    name: str
    leaves: list[Any]
    structure: Any

    @classmethod
    def of(cls, name: str, value: Any) -> _Variable:
        """A variable with this value."""
        return cls(name, *tree_flatten(value))


_PASSES = 12
"""The most times that a body is traced until the dtypes and shapes of its variables no longer change."""


class _Again(Exception):
    """Another pass over the body is needed, because a value that seemed constant changes."""


class TracedLoop:
    """A loop that becomes a ``torch.while_loop``.

    Args:
        test: The condition before each iteration; None for a ``for`` without ``break``.
        body: An iteration; takes its number, an int64 tensor of rank 0.
        state: The variables.
        site: The statement.
        length: The largest number of iterations, after which it ends; None for a ``while``.
        most: A number of iterations after which the condition does not hold, if it is known; for a ``while``.
        fills: Whether tensors of different sizes in a list are filled up.
        with_values: Whether an attribute of a module that an iteration reads, and that is a tensor after one, must be a
            tensor before the loop.

    Raises:
        NoValueBefore: It is None.
    """

    def __init__(
        self,
        test: Action | None,
        body: Callable[[Tensor], None],
        state: State,
        site: Site,
        length: Any = None,
        most: Any = None,
        fills: bool = True,
        with_values: bool = False,
    ) -> None:
        self.test = test
        self.fills = fills
        self.with_values = with_values
        self.body = body
        self.site = site
        self.length = most if length is None else length
        self.limit = None if length is None else _as_number(length)
        self._begin(state)

    def _begin(self, state: State) -> None:
        self.state = state
        values = zip(state.names, state.get(), strict=True)
        self.before = [UNDEFINED if name in state.temporary else value for name, value in values]
        self.attributes = Attributes(state)
        self.contents = Contents([*self.before, *state.held()], [*state.names, *state.touched])
        self.variables = [_Variable.of(*one) for one in zip(state.names, self.before, strict=True)]
        self.lists = [_Variable.of(*one) for one in zip(self.contents.names, self.contents.now(), strict=True)]
        self.carried: dict[tuple[int, int], Output] = {}
        self.growing = GrowingLists(self.site, self.test is not None, self.fills)
        self.resized = ResizedTensors(self._tensors())

    def _tensors(self) -> dict[tuple[int, int], Tensor]:
        places = {
            (i, j): leaf for i, one in enumerate([*self.variables, *self.lists]) for j, leaf in enumerate(one.leaves)
        }
        return {key: leaf for key, leaf in places.items() if isinstance(leaf, Tensor)}

    def run(self) -> None:
        """Trace the loop, and assign the variables their values after it."""
        for _ in range(_PASSES):
            try:
                with notes_unless_raised(_Again):
                    body: Subgraph | None = self._traced(self._iteration)
            except _Again:
                body = None
            except BaseException:
                self.attributes.restore()
                raise
            with_attributes = self.attributes.added_to(self.state, {id(one) for one in body.inputs} if body else ())
            if with_attributes is not None:
                self._begin(with_attributes)
            elif body is not None and self.with_values and self._reads_what_was_none():
                raise NoValueBefore
            elif body is not None:
                self._emit(self._traced(self._goes_on), body)
                return
        self.growing.refuse_uneven()
        refuse(
            self.site,
            "the shape of a variable grows in each iteration",
            "leave the dimension that counts the iterations out of dynamic_shapes if its size is always the same; "
            "otherwise write into a tensor of a fixed size.",
        )

    def _traced(self, function: Callable[..., Sequence[Any]]) -> Subgraph:
        with untracked():
            arguments = [self._placeholder(output) for output in self.carried.values()]
            arguments += [_empty(tensor) for tensor in self._extra_carried()]
        is_on_sizes = self.test is None and not free_unbacked_symbols(self.length)
        try:
            with contextlib.nullcontext() if is_on_sizes else if_data_allow():
                return trace_subgraph(function, arguments)
        finally:
            self.contents.restore()
            self.state.set(self.before)

    def _reads_what_was_none(self) -> bool:
        """Whether an iteration reads an attribute that was None before the loop and that an iteration sets."""
        values = [
            (owner, name, torch.zeros(value.shape, dtype=value.dtype))
            for owner, name, value in self.attributes.were_none
        ]
        if not values:
            return False
        for owner, name, value in values:
            setattr(owner, name, value)
        try:
            read = {id(one) for one in self._traced(self._iteration).inputs}
        except Exception:  # The code for a tensor differs from that for None.
            return True
        finally:
            self.attributes.restore()
            for owner, name, _ in values:
                setattr(owner, name, None)
        return any(id(value) in read for _, _, value in values)

    def _placeholder(self, output: Output) -> Tensor:
        return torch.empty(output.shape or (), dtype=output.dtype, device=output.device)

    def _extra_carried(self) -> list[Tensor]:
        """The number of the iteration, those of elements, and the tensors of lists: like these before the loop."""
        number = torch.zeros((), dtype=torch.int64)
        return [number, *self.resized.before(), *self.growing.before(self.length)]

    def _extra(self, values: Sequence[Tensor]) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """The numbers of elements, and the tensors of lists."""
        extra = values[len(self.carried) + 1 :]
        return extra[: len(self.resized)], extra[len(self.resized) :]

    def _assign(self, values: Sequence[Tensor], index: Tensor | None) -> tuple[list[Any], dict[int, Rows]]:
        """Give the variables the values of an iteration, or after the loop, and the lists the elements until then."""
        numbers, stored = self._extra(values)
        self.resized.begin(numbers)
        rows = self.growing.rows(stored, index)
        given = dict(zip(self.carried, values, strict=False))
        python = {key: self.resized.shortened(key, self.carried[key].in_python(v)) for key, v in given.items()}
        everything = [
            tree_unflatten(
                [python.get((number, position), leaf) for position, leaf in enumerate(variable.leaves)],
                variable.structure,
            )
            for number, variable in enumerate([*self.variables, *self.lists])
        ]
        for number, elements in rows.items():
            everything[number] = self.growing.with_rows(number, everything[number], elements)
        self.state.set([UNDEFINED if value is ABSENT else value for value in everything[: len(self.variables)]])
        for container, contents in zip(self.contents.containers, everything[len(self.variables) :], strict=True):
            refill(container, contents)
        return everything, rows

    def _goes_on(self, *values: Tensor) -> list[Tensor]:
        index = values[len(self.carried)]
        self._assign(values, index)
        truth: Any = True if self.limit is None else index < self.limit
        if self.test is not None:
            truth = both(truth, condition(self.test()))
        return [as_tensor(truth).clone()]

    def _iteration(self, *values: Tensor) -> list[Tensor]:
        index = values[len(self.carried)]
        everything, rows = self._assign(values, index)
        before = [_copied(value) for value in everything]
        self.body(index)
        after = [*self.state.get(), *self.contents.now()]
        changed = False
        computed: dict[tuple[int, int], Any] = {}
        for number, (variable, value) in enumerate(zip([*self.variables, *self.lists], after, strict=True)):
            value = self.growing.without_added(number, variable.name, before[number], value, rows.get(number))
            changed |= self._compare(number, variable, value, computed)
        length = self.resized.most() if self.length is None else self.length
        if self.growing.changed(length) or self.resized.changed or changed:
            self.length = length
            raise _Again
        outputs = [output.computed(computed[key]) for key, output in self.carried.items()]
        _, stored = self._extra(values)
        return [*outputs, index + 1, *self.resized.after(), *self.growing.written(stored, index)]

    def _compare(self, number: int, variable: _Variable, value: Any, computed: dict[tuple[int, int], Any]) -> bool:
        """Compare a variable after an iteration with the one before; whether the loop must be traced again."""
        if len(variable.leaves) == 1 and variable.leaves[0] is UNDEFINED:
            if value is UNDEFINED or variable.name in self.state.inner:
                return False
            leaves, variable.structure = tree_flatten(value)
            variable.leaves = [leaf if type(leaf) in _CONSTANTS or not is_value(leaf) else ABSENT for leaf in leaves]
        leaves, structure = tree_flatten(value)
        if structure != variable.structure:
            refuse_variable(
                self.site, variable.name, "changes its type or its number of elements from one iteration to the next"
            )
        changed = False
        for position, (entry, leaf) in enumerate(zip(variable.leaves, leaves, strict=True)):
            leaf = self.resized.filled((number, position), leaf)
            changed |= self._compare_leaf((number, position), variable, entry, leaf)
            computed[number, position] = leaf
        return changed

    def _compare_leaf(self, key: tuple[int, int], variable: _Variable, entry: Any, leaf: Any) -> bool:
        known = self.carried.get(key)
        agreement = Agreement(self.site, ("an iteration", "the one before it"))
        if known is None:
            agreement.value(variable.name, leaf, entry)
        else:
            example = known.computed(ABSENT) if known.kind == "tensor" or known.kind == "bool" else _NUMBERS[known.kind]
            agreement.value(variable.name, leaf, example)
        if not agreement.outputs:
            return False
        (output,) = agreement.outputs
        new = self._carried(key, variable.name, output, entry, leaf)
        if (
            known is not None
            and (new.dtype, new.kind) == (known.dtype, known.kind)
            and same_shape(new.shape or (), known.shape or ())
        ):
            return False
        self.carried[key] = new
        return True

    def _carried(self, key: tuple[int, int], name: str, output: Output, entry: Any, leaf: Any) -> Output:
        """The carried value; its shape must be the same in each iteration."""
        shape = output.shape
        if shape is None:
            shape = tuple(leaf.shape)
            before = tuple(entry.shape) if isinstance(entry, Tensor) else shape
            resized = self.resized.add(key, before, shape, self.length)
            if resized is not None:
                shape = resized
            elif key not in self.resized and not same_shape(before, shape):
                shapes = f"{before} before and {shape} after an iteration"
                refuse_variable(self.site, name, f"changes its shape: {shapes}")
        return dataclasses.replace(output, values=(leaf, entry), shape=shape)

    def _emit(self, test: Subgraph, body: Subgraph) -> None:
        start = [self.resized.start(key, output.computed(output.values[1])) for key, output in self.carried.items()]
        start += self._extra_carried()
        start += [tensor.clone(memory_format=torch.contiguous_format) for tensor in body.mutated]
        operands = Operands()
        own = len(start) - len(body.mutated)
        mutated = {id(tensor): own + position for position, tensor in enumerate(body.mutated)}
        operands.add(*(value for value in (*body.inputs, *test.inputs) if id(value) not in mutated))
        if operands.share(body.mutated):
            refuse(
                self.site,
                "an iteration changes a tensor in place and also uses a view of it",
                "write into the tensor itself, and read it by index in the loop.",
            )

        def function(subgraph: Subgraph) -> Callable[..., Any]:
            def run(*values: Any) -> tuple[Any, ...]:
                given = operands.lookup(values[len(start) :])
                inputs = [
                    values[mutated[id(value)]] if id(value) in mutated else given(value) for value in subgraph.inputs
                ]
                return run_subgraph(subgraph.module, *values[:own], *inputs)

            return run

        note_operator("Loop", self.site)
        with facts_of_one_path(), shapes_of_branches_apart():
            results = torch.ops.higher_order.while_loop(
                lambda *values: function(test)(*values)[0], function(body), tuple(start), operands.values()
            )
        for tensor, result in zip(body.mutated, results[own:], strict=True):
            tensor.copy_(result)
        self._assign(results[:own], None)


_CONSTANTS = (bool, int, float)
_NUMBERS = {"int": 0, "float": 0.0}


def _as_number(length: Any) -> Tensor:
    """A number of iterations as a tensor."""
    return torch.full((), length, dtype=torch.int64)


def _empty(like: Tensor) -> Tensor:
    return torch.empty_like(like)


def _copied(value: Any) -> Any:
    return list(value) if type(value) is list else value
