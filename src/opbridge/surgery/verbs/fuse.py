"""Replace every computation of an operator's body in a model by one custom node."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx_ir as ir

from opbridge.catalog.declare.catalog import Catalog
from opbridge.catalog.declare.operator import Operator, _operators, find_operator
from opbridge.catalog.declare.spec import specs_of
from opbridge.errors import InputError, OpbridgeError, first_line
from opbridge.onnx_model.structure import did_you_mean
from opbridge.surgery.dimensions import size_of, sizes_of, symbols_in
from opbridge.surgery.edited import Change, Edited, describe, finished, model_of, names_of_values
from opbridge.surgery.matching import Match, Matcher
from opbridge.surgery.patterns import FunctionSource, OperatorSource
from opbridge.surgery.places import add_functions, depends_on_itself, put, used_elsewhere
from opbridge.surgery.shapes import refine_shapes
from opbridge.surgery.template import Given, Pattern, Template
from opbridge.surgery.terms import Reader

__all__ = ["fuse"]

_HINTS = (7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47)
"""Sizes of named dimensions during capture; primes rarely coincide with sizes of the model."""


def fuse(
    model: Any,
    operator: Any,
    *,
    args: Sequence[Any] | None = None,
    at: Sequence[str] | None = None,
    ops: Sequence[Any] = (),
) -> Edited:
    """Find every place where a model computes the body of ``operator``, and replace it by one node of the operator.

    The body is stored as a function of the model, so the result still runs in any engine; if there is a kernel, the
    kernel is used. Equivalent spellings are found too: constants as weights or as nodes, swapped inputs of commutative
    operators, constant or computed shapes, ``Identity``, ``Expand`` and ``Cast`` nodes that change nothing. Number
    arguments of the operator (the number of heads, an epsilon) are read from each place. Each place is confirmed by
    capturing the body again with the sizes, types and numbers of the place; the two must then agree completely.

    Args:
        model: A path, an ``ir.Model`` or a ``ModelProto``. It is not changed.
        operator: An operator declared with ``@opbridge.operator``, or its name, or an onnxscript function.
        args: Example arguments for a declared operator, with the model's ranks; by default its first sample.
        at: The names of output values; only places that produce one of them are fused. None for all places.
        ops: Files with declarations, in addition to those of this process.

    Returns:
        The new model; each change names the new node.

    Raises:
        InputError: The body does not occur (the message says how the closest place differs), two places overlap, or a
            value in ``at`` is not the output of a place.
    """
    own = model_of(model)
    refine_shapes(own)
    places = _places(own, _sources(operator, args, own.opset_imports.get("", 1), ops), at)
    _refuse_overlaps(places)
    taken = names_of_values(own)
    changes = []
    moved: dict[ir.Value, ir.Value] = {}
    for place in places:
        renamed = add_functions(own, [function.clone() for function in place.template.functions])
        overload = renamed.get(place.template.overload, place.template.overload)
        template = dataclasses.replace(place.template, overload=overload)
        # An input of this place may be an output of a place that was replaced before.
        bound = {
            key: dataclasses.replace(item, value=moved.get(item.value, item.value))
            for key, item in place.match.inputs.items()
        }
        node = put(place.graph, place.match.grown(inputs=bound), place.inputs, template, taken)
        moved.update(zip(place.match.outputs, node.outputs, strict=True))
        changes.append(Change(f"{len(place.match.nodes)} nodes are now one {place.name}", (describe(node),)))
    return finished(model, own, changes)


@dataclasses.dataclass(frozen=True)
class _Place:
    """A place where the body is computed; ``inputs`` are those of the pattern that confirmed the match."""

    graph: ir.Graph
    match: Match
    inputs: tuple[ir.Value, ...]
    template: Template
    name: str


def _places(
    model: ir.Model, sources: Sequence[OperatorSource | FunctionSource], at: Sequence[str] | None
) -> list[_Place]:
    """The places found with the first form of the body that occurs."""
    first = None
    for source in sources:
        try:
            search = _Search(model, source)
            first = first or search
            places = [place for graph in _graphs(model.graph) for place in search.places(graph)]
        except OpbridgeError:
            if first is None or source is sources[0]:
                raise
            continue  # Torch's own mappings do not cover this body.
        if places:
            return _chosen(places, at, search, source.name)
    assert first is not None
    return _chosen([], at, first, sources[0].name)


def _sources(
    operator: Any, args: Sequence[Any] | None, opset: int, ops: Sequence[Any]
) -> Sequence[OperatorSource | FunctionSource]:
    """The body as exported by opbridge and, for models of other exporters, with torch's own mappings only."""
    catalog = Catalog.load(ops)
    if isinstance(operator, str):
        found = find_operator(operator)
        if found is None:
            files = ", ".join(repr(str(one)) for one in ops if isinstance(one, (str, Path)))
            raise InputError(
                f"No operator {operator!r} is declared{f' in {files} or before' if files else ''}.",
                fix="declare it with @opbridge.operator, and import that file or name it with --ops; "
                + did_you_mean(operator, _operators),
            )
        operator = found
    if isinstance(operator, Operator):
        own = [spec for spec in specs_of(operator) if spec not in catalog.specs]
        given, full = _example(operator) if args is None else args, catalog.extended(own)
        alone = dataclasses.replace(full, builtin=())
        return [OperatorSource(operator, given, opset, full), OperatorSource(operator, given, opset, alone)]
    if hasattr(operator, "to_function_proto"):
        function = ir.from_proto(operator.to_function_proto())
        function.opset_imports[""] = opset
        return [FunctionSource(function)]
    raise InputError(
        f"{getattr(operator, '__name__', operator)!r} is not an operator.",
        fix="declare the function with @opbridge.operator('domain::name'), or pass an onnxscript function.",
    )


def _example(operator: Any) -> tuple[Any, ...]:
    samples = operator.samples() if operator.samples is not None else ()
    if not samples:
        raise InputError(
            f"{operator.target} has no example of its arguments.",
            fix="pass args=(...), example arguments of the ranks that the model has, or declare samples=.",
        )
    import inspect

    bound = inspect.signature(operator.function).bind(*samples[0].args, **samples[0].kwargs)
    bound.apply_defaults()
    return tuple(bound.arguments.values())


class _Search:
    """Searches the graphs of a model for one operator's body."""

    def __init__(self, model: ir.Model, source: OperatorSource | FunctionSource) -> None:
        self._opset = model.opset_imports.get("", 1)
        self._source = source
        self._loose = source.loosely()
        self._exact: dict[Any, tuple[Pattern, Template] | str] = {}
        self.reasons: dict[str, str] = {}
        self.closest = ""
        self._depth = 0
        reader = Reader(self._opset, frozenset(self._loose.inputs))
        for output in self._loose.outputs:
            if reader.base(output)[0].producer() is None:
                raise InputError(
                    f"The body of {source.name} gives one of its inputs back, so it occurs everywhere.",
                    fix="fuse an operator that computes something.",
                )

    def places(self, graph: ir.Graph) -> Iterator[_Place]:
        """The places in a graph, in its order."""
        reader = Reader(self._opset)
        pattern = Reader(self._opset, frozenset(self._loose.inputs))
        values = [value for node in graph for value in node.outputs]
        for value in values:
            matcher = Matcher(pattern, reader, self._loose.inputs, self._loose.outputs, exact=False)
            match = matcher.find(value, values)
            self._note(matcher)
            if match is None or len(match.inputs) < len(self._loose.inputs):
                continue
            place = self._confirmed(graph, reader, match, values)
            if isinstance(place, _Place):
                yield place
            elif place:
                self.reasons[str(value.name)] = place

    def _confirmed(self, graph: ir.Graph, reader: Reader, match: Match, values: Sequence[ir.Value]) -> _Place | str:
        """The place, confirmed by an exact match; or the reason why it is rejected."""
        bound = [match.inputs[item] for item in self._loose.inputs]
        given = []
        for item in bound:
            sizes = sizes_of(item.value)
            if sizes is None or item.value.dtype is None:
                return f"the type of {item.value.name!r} is not known"
            order = item.perm or range(len(sizes))
            given.append(Given(item.value.dtype, tuple(_named(sizes[axis], item.value, axis) for axis in order)))
        numbers = _numbers(given)
        reason = "its numbers differ"
        for guess in self._source.guesses(match):
            made = self._made(given, guess, numbers[0])
            if isinstance(made, str):
                reason = made
                continue
            pattern, template = made
            matcher = Matcher(
                Reader(self._opset, frozenset(pattern.inputs)),
                reader,
                pattern.inputs,
                pattern.outputs,
                exact=True,
                numbers=numbers,
            )
            found = matcher.find(match.outputs[0], values)
            self._note(matcher)
            if found is None:
                reason = matcher.closest[1] or reason
            elif set(found.inputs) != set(pattern.inputs):
                reason = "not every argument can be read from it"
            else:
                nodes = [node for node in found.nodes if not _is_constant(node)]
                values_in = [item.value for item in found.inputs.values()]
                reason = used_elsewhere(nodes, found.outputs) or depends_on_itself(nodes, values_in)
                return reason or _Place(graph, found, pattern.inputs, template, self._source.name)
        return reason

    def _made(
        self, given: Sequence[Given], guess: tuple[Any, ...], sizes: Mapping[str, int]
    ) -> tuple[Pattern, Template] | str:
        """The pattern and the node for arguments of these types and sizes, or the reason why they can't be made."""
        key = (tuple(given), guess)
        if key not in self._exact:
            try:
                pattern = self._source.exactly(given, guess, sizes)
                self._exact[key] = (pattern, self._source.template(given, guess, sizes))
            except OpbridgeError as error:
                self._exact[key] = error.message
            except (RuntimeError, ValueError, TypeError, AssertionError) as error:
                self._exact[key] = first_line(error)
        return self._exact[key]

    def _note(self, matcher: Matcher) -> None:
        if matcher.closest[0] > self._depth:
            self._depth, self.closest = matcher.closest


def _named(size: Any, value: ir.Value, axis: int) -> Any:
    """A size; an unknown size gets a name."""
    return f"size_{axis}_of_{value.name}" if size is None else size


def _numbers(given: Sequence[Given]) -> list[dict[str, int]]:
    """Several choices of sizes for the named dimensions."""
    names = sorted({name for item in given for size in item.sizes for name in symbols_in(size)})
    choices = []
    for shift in range(3):
        numbers = {name: _HINTS[(position + 4 * shift) % len(_HINTS)] for position, name in enumerate(names)}
        for size in (size for item in given for size in item.sizes if isinstance(size, str)):
            found = size_of(size, numbers)
            if found is not None:
                numbers[size] = found
        choices.append(numbers)
    return choices


def _is_constant(node: ir.Node) -> bool:
    return not node.domain and node.op_type == "Constant"


def _chosen(places: list[_Place], at: Sequence[str] | None, search: _Search, name: str) -> list[_Place]:
    if at is not None:
        found = {str(place.match.outputs[0].name): place for place in places}
        for value in at:
            if value not in found:
                reason = search.reasons.get(value, "")
                raise InputError(
                    f"The body of {name} does not give {value!r}" + (f": {reason}." if reason else "."),
                    fix=did_you_mean(value, found) if found else "the body occurs nowhere in the model.",
                )
        return [found[value] for value in dict.fromkeys(at)]
    if not places:
        reasons = [f"{reason}, for the one that gives {value!r}" for value, reason in search.reasons.items()]
        closest = reasons[0] if reasons else search.closest
        raise InputError(
            f"The body of {name} occurs nowhere in the model"
            + (f"; at the closest place {closest}." if closest else "."),
            fix="write the body as the model computes it, give args of the model's ranks, or name the "
            "nodes with opbridge.surgery.collapse (--inputs and --outputs).",
        )
    return places


def _refuse_overlaps(places: Sequence[_Place]) -> None:
    owners: dict[ir.Node, _Place] = {}
    for place in places:
        for node in (node for node in place.match.nodes if not _is_constant(node)):
            other = owners.setdefault(node, place)
            if other is not place:
                one, two = (str(item.match.outputs[0].name) for item in (other, place))
                raise InputError(
                    f"Two places overlap in {describe(node)!r}: the one that gives {one!r} and the one that gives "
                    f"{two!r}.",
                    fix=f"choose with at=[{one!r}] (--at {one}), and fuse again for the other if it is left.",
                )


def _graphs(graph: ir.Graph) -> Iterator[ir.Graph]:
    yield graph
    for node in graph:
        for attribute in node.attributes.values():
            if attribute.is_ref():
                continue
            if attribute.type is ir.AttributeType.GRAPH:
                yield from _graphs(attribute.as_graph())
            elif attribute.type is ir.AttributeType.GRAPHS:
                for inner in attribute.as_graphs():
                    yield from _graphs(inner)
