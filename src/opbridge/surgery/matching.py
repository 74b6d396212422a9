"""Finds the places where a graph computes a pattern. Both are read with :mod:`~opbridge.surgery.terms`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from opbridge.surgery.dimensions import Sizes, same_sizes, sizes_of
from opbridge.surgery.terms import COMMUTATIVE, Reader, Term

__all__ = ["Bound", "Match", "Matcher"]

_MOST_STEPS = 20_000


@dataclasses.dataclass(frozen=True)
class Bound:
    """The value in the graph for an input of the pattern.

    Attributes:
        value: A value of the graph.
        perm: The permutation that transposes ``value`` to the input; None if it is not transposed.
    """

    value: ir.Value
    perm: tuple[int, ...] | None = None


@dataclasses.dataclass
class Match:
    """A complete or partial match of the pattern.

    Attributes:
        inputs: The graph value of each input of the pattern.
        outputs: The value of the graph for each output of the pattern found so far.
        nodes: The matched nodes of the graph, as an ordered set.
        constants: Pairs of a constant in the pattern and in the graph: arrays, numbers or shapes.
        pairs: The value of the graph for each matched value of the pattern.
    """

    inputs: dict[ir.Value, Bound] = dataclasses.field(default_factory=dict)
    outputs: tuple[ir.Value, ...] = ()
    nodes: dict[ir.Node, None] = dataclasses.field(default_factory=dict)
    constants: tuple[tuple[Any, Any], ...] = ()
    pairs: dict[ir.Value, ir.Value] = dataclasses.field(default_factory=dict)

    def grown(self, **changes: Any) -> Match:
        """A copy with the given changes."""
        return dataclasses.replace(self, **changes)


class Matcher:
    """Matches one pattern in one graph.

    Args:
        pattern: The reader of the pattern.
        graph: The reader of the graph.
        inputs: The pattern's inputs.
        outputs: The pattern's outputs; each is the output of a node.
        exact: Whether constants, numbers and sizes must be equal. If False, they are only collected.
        numbers: Sizes of the named dimensions; two shapes are equal if they are equal for each mapping.
    """

    def __init__(
        self,
        pattern: Reader,
        graph: Reader,
        inputs: Sequence[ir.Value],
        outputs: Sequence[ir.Value],
        *,
        exact: bool,
        numbers: Sequence[Mapping[str, int]] = (),
    ) -> None:
        self._pattern = pattern
        self._graph = graph
        self._inputs = set(inputs)
        self._outputs = tuple(outputs)
        self._exact = exact
        self._numbers = numbers or ({},)
        self._steps = 0
        self.closest: tuple[int, str] = (0, "")

    def find(self, value: ir.Value, candidates: Sequence[ir.Value] = (), given: Match | None = None) -> Match | None:
        """The match whose first output is ``value``; None if there is no match.

        Args:
            value: A value of the graph.
            candidates: Values to search for the other outputs.
            given: A partial match to start from.
        """
        self._steps = 0
        for found in self._values(self._outputs[0], value, given or Match()):
            for whole in self._rest(found.grown(outputs=(value,)), candidates):
                return whole
        return None

    def _rest(self, match: Match, candidates: Sequence[ir.Value]) -> Iterator[Match]:
        """The match extended by the pattern's other outputs."""
        if len(match.outputs) == len(self._outputs):
            yield match
            return
        wanted = self._outputs[len(match.outputs)]
        known = match.pairs.get(wanted)
        for value in [known] if known is not None else candidates:
            if value not in match.outputs:
                for found in self._values(wanted, value, match):
                    yield from self._rest(found.grown(outputs=(*match.outputs, value)), candidates)

    def _values(self, mine: Any, theirs: Any, match: Match) -> Iterator[Match]:
        """All extensions of a match in which ``theirs`` (in the graph) corresponds to ``mine`` (in the pattern)."""
        self._steps += 1
        if self._steps > _MOST_STEPS:
            return
        if mine is None or theirs is None:
            if mine is theirs:
                yield match
            return
        if isinstance(mine, ir.Value):
            if mine in self._inputs:
                yield from self._bind(mine, theirs, match)
                return
            earlier = match.pairs.get(mine)
            if earlier is not None and isinstance(theirs, ir.Value) and self._same(earlier, theirs):
                yield match
                return
            if not self._exact and (reference := _reference(mine)) is not None and isinstance(theirs, ir.Value):
                if (found := self._graph.constant(theirs)) is not None:
                    yield match.grown(constants=(*match.constants, (reference, found.reshape(-1)[0].item())))
                return
            constant = self._pattern.constant(mine)
            if constant is not None:
                yield from self._constants(constant, theirs, match)
                return
        yield from self._terms(self._pattern.term(mine), self._graph.term(theirs), mine, theirs, match)

    def _same(self, one: ir.Value, other: ir.Value) -> bool:
        return self._graph.base(one)[0] is self._graph.base(other)[0]

    def _bind(self, mine: ir.Value, theirs: Any, match: Match) -> Iterator[Match]:
        if not isinstance(theirs, ir.Value):
            return
        earlier = match.inputs.get(mine)
        if earlier is not None:
            if earlier.perm is None and self._same(earlier.value, theirs):
                yield match
            return
        if self._fits(mine, theirs):
            yield match.grown(inputs={**match.inputs, mine: Bound(theirs)})

    def _fits(self, mine: ir.Value, theirs: ir.Value) -> bool:
        if mine.dtype is not None and theirs.dtype is not None and mine.dtype != theirs.dtype:
            return False
        expected, found = sizes_of(mine), sizes_of(theirs)
        if expected is None or found is None:
            return not self._exact or expected is None
        return len(expected) == len(found) and (not self._exact or self._same_sizes(expected, found))

    def _same_sizes(self, one: Sizes | None, other: Sizes | None) -> bool:
        return same_sizes(one, other, self._numbers)

    def _constants(self, constant: np.ndarray, theirs: Any, match: Match) -> Iterator[Match]:
        found = self._graph.constant(theirs) if isinstance(theirs, ir.Value) else None
        if found is None:
            self._note(match, theirs, f"is no constant, where the pattern has {_short(constant)}")
        elif found.dtype != constant.dtype:
            self._note(match, theirs, f"is {found.dtype}, where the pattern has {constant.dtype}")
        elif not self._exact:
            yield match.grown(constants=(*match.constants, (constant, found)))
        elif _same_constant(constant, found):
            yield match
        else:
            self._note(match, theirs, f"is {_short(found)}, where the pattern has {_short(constant)}")

    def _terms(self, mine: Term, theirs: Term, mine_as: Any, theirs_as: Any, match: Match) -> Iterator[Match]:
        if theirs.operator != mine.operator or theirs.output != mine.output:
            yield from self._inverse(mine, theirs_as, match)
            what = theirs_as if theirs.operator == "leaf" else theirs.nodes[-1] if theirs.nodes else theirs_as
            self._note(match, what, f"is {_named(theirs)}, where the pattern has {_named(mine)}")
            return
        constants = self._attributes(mine, theirs, match)
        if constants is None:
            yield from self._inverse(mine, theirs_as, match)
            return
        changes: dict[str, Any] = {
            "constants": (*match.constants, *constants),
            "nodes": {**match.nodes, **dict.fromkeys(theirs.nodes)},
        }
        if isinstance(mine_as, ir.Value) and isinstance(theirs_as, ir.Value):
            changes["pairs"] = {**match.pairs, mine_as: theirs_as}
        grown = match.grown(**changes)
        if mine.operator == "leaf":
            if mine.value is theirs.value:
                yield grown
            return
        yield from self._operands(mine, theirs, grown)

    def _operands(self, mine: Term, theirs: Term, match: Match) -> Iterator[Match]:
        ours, others = _trimmed(mine.operands), _trimmed(theirs.operands)
        if len(ours) != len(others):
            return
        orders = [others]
        if mine.operator in COMMUTATIVE and len(others) == 2:
            orders.append(others[::-1])
        for order in orders:
            yield from self._in_turn(ours, order, match)
        # The graph may combine a view or transpose of an input with its own views and transposes.
        if mine.operator in {"view", "transpose"} and mine.operands[0] in self._inputs:
            for value in theirs.through:
                if value is not others[0] and mine.operator == "view":
                    yield from self._bind(mine.operands[0], value, match)

    def _in_turn(self, mine: Sequence[Any], theirs: Sequence[Any], match: Match) -> Iterator[Match]:
        if not mine:
            yield match
            return
        for found in self._values(mine[0], theirs[0], match):
            yield from self._in_turn(mine[1:], theirs[1:], found)

    def _inverse(self, mine: Term, theirs: Any, match: Match) -> Iterator[Match]:
        """Bind a transposed input to another value of the graph, by transposing that value back."""
        if mine.operator != "transpose" or mine.operands[0] not in self._inputs or not isinstance(theirs, ir.Value):
            return
        perm = mine.attributes["perm"]
        if mine.operands[0] in match.inputs or theirs.shape is None or len(theirs.shape) != len(perm):
            return
        back = tuple(int(axis) for axis in np.argsort(perm))
        expected = sizes_of(mine.operands[0])
        found = sizes_of(theirs) or ()
        if self._exact and not self._same_sizes(expected, tuple(found[axis] for axis in back)):
            return
        yield match.grown(inputs={**match.inputs, mine.operands[0]: Bound(theirs, back)})

    def _attributes(self, mine: Term, theirs: Term, match: Match) -> list[tuple[Any, Any]] | None:
        """The numbers that differ, if that is allowed; None if the attributes do not match."""
        if mine.operator == "view":
            one, other = mine.attributes["sizes"], theirs.attributes["sizes"]
            if not self._exact and (one is None or other is None):
                return []
            if self._exact and not self._same_sizes(one, other):
                self._note(match, theirs.value, f"has the shape {_sizes(other)}, where the pattern has {_sizes(one)}")
                return None
            return [(one, other)] if len(one) == len(other) else None
        if mine.attributes == theirs.attributes:
            return []
        differing = []
        for name in {**mine.attributes, **theirs.attributes}:
            one, other = mine.attributes.get(name), theirs.attributes.get(name)
            free = not self._exact and name not in {"perm", "axis", "axes", "to"}
            if one != other and not _close(one, other):
                if not (free and (type(one) is type(other) or is_reference(one))):
                    self._note(match, theirs.value, f"has {name}={other}, where the pattern has {name}={one}")
                    return None
                differing.append((one, other))
        return differing

    def _note(self, match: Match, what: Any, reason: str) -> None:
        """Record why a match failed, if it is the largest one so far."""
        if len(match.pairs) > self.closest[0]:
            name = getattr(what, "name", None) or "a value"
            self.closest = (len(match.pairs), f"{name!r} {reason}")


def is_reference(value: Any) -> bool:
    """Whether an attribute's value refers to an attribute of the enclosing function."""
    return isinstance(value, tuple) and len(value) == 2 and value[0] == "reference"


def _reference(value: ir.Value) -> Any:
    node = value.producer()
    if node is None or node.op_type != "Constant" or node.domain:
        return None
    return next(
        (("reference", attribute.ref_attr_name) for attribute in node.attributes.values() if attribute.is_ref()), None
    )


def _trimmed(operands: Sequence[Any]) -> tuple[Any, ...]:
    kept = list(operands)
    while kept and kept[-1] is None:
        kept.pop()
    return tuple(kept)


def _close(one: Any, other: Any) -> bool:
    return isinstance(one, float) and isinstance(other, float) and math.isclose(one, other, rel_tol=1e-6)


def _same_constant(one: np.ndarray, other: np.ndarray) -> bool:
    if one.size == 1 and other.size == 1:
        one, other = one.reshape(()), other.reshape(())
    if one.shape != other.shape:
        return False
    if one.dtype.kind in "fc":
        # Constants computed in another precision or order differ by a rounding error.
        close = np.allclose(one, other, rtol=8 * float(np.finfo(one.dtype).eps), atol=0, equal_nan=True)
        return bool(close)
    return bool(np.array_equal(one, other))


def _sizes(sizes: Sizes | None) -> str:
    return "that is not known" if sizes is None else str(list(sizes))


def _short(array: np.ndarray) -> str:
    if array.size <= 8:
        return str(array.tolist())
    return f"a constant of shape {list(array.shape)}"


def _named(term: Term) -> str:
    return {"leaf": "an input or weight", "view": "Reshape", "transpose": "Transpose"}.get(term.operator, term.operator)
