"""Loops whose length is known only at run time: the body is traced once, and becomes one ``torch.while_loop``."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils import _pytree as pytree

from opbridge.capture.control_flow.attributes import Attributes
from opbridge.capture.control_flow.conditions import as_tensor, both, condition
from opbridge.capture.control_flow.operands import Operands
from opbridge.capture.control_flow.rows import Rows, as_rows
from opbridge.capture.control_flow.site import Site, described, refuse
from opbridge.capture.control_flow.state import State, note_operator, notes_unless_raised
from opbridge.capture.control_flow.values import ABSENT, UNDEFINED, Agreement, Contents, Output, is_value, refill
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
        return cls(name, *pytree.tree_flatten(value))


@dataclasses.dataclass(frozen=True)
class _Growth:
    """A list or tuple that each iteration adds elements to.

    Attributes:
        like: The elements of one iteration, stacked.
        kept: Whether each element may be left out.
        are_numbers: Whether they are Python numbers and not tensors.
        at_front: Whether they are inserted before the others and not appended.
    """

    like: Tensor
    kept: bool
    are_numbers: bool
    at_front: bool

    def agrees(self, other: _Growth) -> bool:
        """Whether the same tensors can take the elements of both."""
        same = self.like.dtype == other.like.dtype and _same(self.like.shape, other.like.shape)
        return same and dataclasses.replace(self, like=other.like) == other

    def rows(self, values: Tensor, kept: Tensor | None) -> Rows:
        """The elements of all iterations, in their order in the list."""
        rows = Rows(values.flatten(0, 1), kept.flatten() if kept is not None else None, self.are_numbers)
        return rows.reversed() if self.at_front else rows

    def added_to(self, value: Any, rows: Rows) -> Any:
        """The list with these elements."""
        return type(value)([rows, *value] if self.at_front else [*value, rows])


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
    """

    def __init__(
        self,
        test: Action | None,
        body: Callable[[Tensor], None],
        state: State,
        site: Site,
        length: Any = None,
        most: Any = None,
    ) -> None:
        self.test = test
        self.body = body
        self.site = site
        self.length = most if length is None else length
        self.limit = None if length is None else _as_number(length)
        self._begin(state)

    def _begin(self, state: State) -> None:
        self.state = state
        self.before = state.get()
        self.attributes = Attributes(state)
        self.contents = Contents([*self.before, *state.held()], [*state.names, *state.touched])
        self.variables = [_Variable.of(*one) for one in zip(state.names, self.before, strict=True)]
        self.lists = [_Variable.of(*one) for one in zip(self.contents.names, self.contents.now(), strict=True)]
        self.carried: dict[tuple[int, int], Output] = {}
        self.grown: dict[int, _Growth] = {}

    def run(self) -> None:
        """Trace the loop, and assign the variables their values after it."""
        for _ in range(_PASSES):
            try:
                with notes_unless_raised(_Again):
                    body: Subgraph | None = self._traced(self._iteration)
            except _Again:
                body = None
            with_attributes = self.attributes.added_to(self.state)
            if with_attributes is not None:
                self._begin(with_attributes)
            elif body is not None:
                self._emit(self._traced(self._goes_on), body)
                return
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
        try:
            return trace_subgraph(function, arguments)
        finally:
            self.contents.restore()
            self.state.set(self.before)

    def _placeholder(self, output: Output) -> Tensor:
        return torch.empty(output.shape or (), dtype=output.dtype, device=output.device)

    def _extra_carried(self) -> list[Tensor]:
        """The number of the iteration, and the rows of the lists: tensors like these before the loop."""
        extra = [torch.zeros((), dtype=torch.int64)]
        for growth in self.grown.values():
            count = torch.sym_max(self.length, 0) if isinstance(self.length, torch.SymInt) else max(self.length, 0)
            like = growth.like
            extra.append(torch.zeros((count, *like.shape), dtype=like.dtype, device=like.device))
            if growth.kept:
                extra.append(torch.zeros((count, growth.like.shape[0]), dtype=torch.bool))
        return extra

    def _assign(self, values: Sequence[Tensor], rows: Mapping[int, Rows]) -> list[Any]:
        """Give the variables the values of an iteration, and the lists the elements of those before it."""
        given = dict(zip(self.carried, values, strict=False))
        python = {key: self.carried[key].in_python(value) for key, value in given.items()}
        everything = [
            pytree.tree_unflatten(
                [python.get((number, position), leaf) for position, leaf in enumerate(variable.leaves)],
                variable.structure,
            )
            for number, variable in enumerate([*self.variables, *self.lists])
        ]
        for number, elements in rows.items():
            everything[number] = self.grown[number].added_to(everything[number], elements)
        self.state.set([UNDEFINED if value is ABSENT else value for value in everything[: len(self.variables)]])
        for container, contents in zip(self.contents.containers, everything[len(self.variables) :], strict=True):
            refill(container, contents)
        return everything

    def _rows(self, tensors: Sequence[Tensor], index: Tensor | None) -> dict[int, Rows]:
        """The elements that lists have grown by: before this iteration, or in all of them."""
        remaining, found = list(tensors), {}
        for number, growth in self.grown.items():
            values, kept = remaining.pop(0), remaining.pop(0) if growth.kept else None
            if kept is None and index is not None:
                kept = (torch.arange(values.shape[0]) < index)[:, None].expand(values.shape[:2])
            found[number] = growth.rows(values, kept)
        return found

    def _goes_on(self, *values: Tensor) -> list[Tensor]:
        index, *rows = values[len(self.carried) :]
        self._assign(values, self._rows(rows, index))
        truth: Any = True if self.limit is None else index < self.limit
        if self.test is not None:
            truth = both(truth, condition(self.test()))
        return [as_tensor(truth).clone()]

    def _iteration(self, *values: Tensor) -> list[Tensor]:
        index, *tensors = values[len(self.carried) :]
        rows = self._rows(tensors, index)
        before = [_copied(value) for value in self._assign(values, rows)]
        self.body(index)
        after = [*self.state.get(), *self.contents.now()]
        changed = False
        computed: dict[tuple[int, int], Any] = {}
        growth: dict[int, tuple[_Growth, Tensor | None]] = {}
        for number, (variable, value) in enumerate(zip([*self.variables, *self.lists], after, strict=True)):
            kept, added, at_front = _grown(before[number], value)
            if added or number in self.grown:
                growth[number] = self._growth(variable.name, added, at_front)
                value = self._without(variable.name, kept, rows.get(number))
            changed |= self._compare(number, variable, value, computed)
        for number, (new, _) in growth.items():
            changed |= number not in self.grown or not self.grown[number].agrees(new)
            self.grown[number] = new
        if changed:
            raise _Again
        outputs = [output.computed(computed[key]) for key, output in self.carried.items()]
        return [*outputs, index + 1, *self._written(tensors, index, growth)]

    def _compare(self, number: int, variable: _Variable, value: Any, computed: dict[tuple[int, int], Any]) -> bool:
        """Compare a variable after an iteration with the one before; whether the loop must be traced again."""
        if len(variable.leaves) == 1 and variable.leaves[0] is UNDEFINED:
            if value is UNDEFINED or variable.name in self.state.inner:
                return False
            leaves, variable.structure = pytree.tree_flatten(value)
            variable.leaves = [leaf if type(leaf) in _CONSTANTS or not is_value(leaf) else ABSENT for leaf in leaves]
        leaves, structure = pytree.tree_flatten(value)
        if structure != variable.structure:
            self._refuse(variable.name, "changes its type or its number of elements from one iteration to the next")
        changed = False
        for position, (entry, leaf) in enumerate(zip(variable.leaves, leaves, strict=True)):
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
        new = self._carried(variable.name, output, entry, leaf)
        if known is not None and (new.dtype, new.kind) == (known.dtype, known.kind) and _same(new.shape, known.shape):
            return False
        self.carried[key] = new
        return True

    def _carried(self, name: str, output: Output, entry: Any, leaf: Any) -> Output:
        """The carried value; its shape must be the same in each iteration."""
        shape = output.shape
        if shape is None:
            shape = tuple(leaf.shape)
            if isinstance(entry, Tensor) and not _same(tuple(entry.shape), shape):
                shapes = f"{tuple(entry.shape)} before and {shape} after an iteration"
                self._refuse(name, f"changes its shape: {shapes}")
        return dataclasses.replace(output, values=(leaf, entry), shape=shape)

    def _growth(self, name: str, added: Sequence[Any], at_front: bool) -> tuple[_Growth, Tensor | None]:
        """How a list grows, and which elements it keeps if that depends on data."""
        if self.length is None:
            refuse(
                self.site,
                f"the list {name!r} grows in a loop without a largest number of iterations",
                f"end the loop at a largest length too, with `while len({name}) < largest and ...`, or write into a "
                "tensor of a fixed size.",
            )
        parts = [as_rows(one) for one in added]
        rows = [part for part in parts if part is not None]
        if not rows or len(rows) < len(parts):
            reason = f"the list {name!r} gets elements that are neither tensors nor numbers"
            refuse(self.site, reason, "append tensors or numbers, to one list for each element of a tuple.")
        if at_front:
            rows = [part.reversed() for part in reversed(rows)]
        like, kept = torch.cat([part.values for part in rows]) if len(rows) > 1 else rows[0].values, None
        if any(part.kept is not None for part in rows):
            kept = torch.cat([_present(part) for part in rows])
        return _Growth(like, kept is not None or self.test is not None, rows[0].are_numbers, at_front), kept

    def _without(self, name: str, value: Any, rows: Rows | None) -> Any:
        """A list without the elements of the iterations before."""
        if rows is None:
            return value
        others = [one for one in value if not isinstance(one, Rows) or one.values is not rows.values]
        if len(others) != len(value) - 1:
            self._refuse(name, "is a list that grows, and that also loses elements")
        return type(value)(others)

    def _written(
        self, tensors: Sequence[Tensor], index: Tensor, growth: Mapping[int, tuple[_Growth, Tensor | None]]
    ) -> list[Tensor]:
        """The tensors of the lists with the elements of this iteration."""
        written, remaining = [], list(tensors)
        for number in self.grown:
            new, kept = growth[number]
            written.append(remaining.pop(0).index_put((index,), new.like))
            if new.kept:
                present = torch.ones(new.like.shape[:1], dtype=torch.bool) if kept is None else kept
                written.append(remaining.pop(0).index_put((index,), present))
        return written

    def _emit(self, test: Subgraph, body: Subgraph) -> None:
        start = [output.computed(output.values[1]) for output in self.carried.values()]
        start += self._extra_carried()
        start += [tensor.clone(memory_format=torch.contiguous_format) for tensor in body.mutated]
        operands = Operands()
        own = len(start) - len(body.mutated)
        mutated = {id(tensor): own + position for position, tensor in enumerate(body.mutated)}
        operands.add(*(value for value in (*body.inputs, *test.inputs) if id(value) not in mutated))

        def function(subgraph: Subgraph) -> Callable[..., Any]:
            def run(*values: Any) -> tuple[Any, ...]:
                given = operands.lookup(values[len(start) :])
                inputs = [
                    values[mutated[id(value)]] if id(value) in mutated else given(value) for value in subgraph.inputs
                ]
                return run_subgraph(subgraph.module, *values[:own], *inputs)

            return run

        note_operator("Loop", self.site)
        with facts_of_one_path():
            results = torch.ops.higher_order.while_loop(
                lambda *values: function(test)(*values)[0], function(body), tuple(start), operands.values()
            )
        for tensor, result in zip(body.mutated, results[own:], strict=True):
            tensor.copy_(result)
        self._assign(results, self._rows(results[len(self.carried) + 1 : own], None))

    def _refuse(self, name: str, what: str) -> None:
        refuse(
            self.site,
            f"{described(name)} {what}",
            f"give {described(name)} its final shape and type before the loop: write into a tensor, for example.",
        )


_CONSTANTS = (bool, int, float)
_NUMBERS = {"int": 0, "float": 0.0}


def _as_number(length: Any) -> Tensor:
    """A number of iterations as a tensor."""
    return torch.full((), length, dtype=torch.int64)


def _empty(like: Tensor) -> Tensor:
    return torch.empty_like(like)


def _same(a: Sequence[Any] | None, b: Sequence[Any] | None) -> bool:
    if a is None or b is None or len(a) != len(b):
        return a is b
    return all(statically_known_true(x == y) for x, y in zip(a, b, strict=True))


def _copied(value: Any) -> Any:
    return list(value) if type(value) is list else value


def _grown(before: Any, after: Any) -> tuple[Any, Sequence[Any], bool]:
    """What a variable had before an iteration, what was added to it if it is a list, and whether at the front."""
    if type(before) is not type(after) or type(after) not in (list, tuple) or len(after) <= len(before):
        return after, (), False
    added = len(after) - len(before)
    is_at_end = all(map(operator.is_, before, after))
    if not is_at_end and all(map(operator.is_, before, after[added:])):
        return after[added:], after[:added], True
    return after[: len(before)], after[len(before) :], False


def _present(rows: Rows) -> Tensor:
    return torch.ones(rows.values.shape[:1], dtype=torch.bool) if rows.kept is None else rows.kept
