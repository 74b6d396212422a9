"""Maps the values of a decomposed graph, and of its ONNX model, to nodes of the captured graph.

torch records the original nodes of each node of a decomposed graph. The last node of a decomposition has the value of
the operator; the other nodes have no counterpart in the captured graph.
"""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import onnx_ir as ir
import torch

__all__ = ["Origin", "captured_name", "captured_nodes", "origins_of_values"]

_SAME_NUMBERS = frozenset(
    (
        "view",
        "_unsafe_view",
        "reshape",
        "alias",
        "clone",
        "detach",
        "contiguous",
        "expand",
        "lift_fresh_copy",
        "_to_copy",
    )
)
_FX_NODE = re.compile(r"^%(\w+)")
_REWRITTEN = "pkg.onnxscript.rewriter.rule_name"
_NUMBERED = re.compile(r"^(\w+?)(?:__|_split_)(\d+)$")


@dataclasses.dataclass(frozen=True)
class Origin:
    """A value of the captured graph.

    Attributes:
        node: The node's name.
        index: The index of the result; None if the node has a single result.
    """

    node: str
    index: int | None = None

    def to_json(self) -> list[Any]:
        """The origin as JSON data."""
        return [self.node, self.index]


def origins_of_values(
    model: ir.Model, captured: torch.export.ExportedProgram, decomposed: torch.export.ExportedProgram
) -> dict[ir.Value, Origin]:
    """The origins of the values that an ONNX model and the captured graph have in common.

    Args:
        model: The model made by torch.onnx from ``decomposed``. Its values have the names of the nodes of that graph,
            and its nodes have torch's metadata.
        captured: The captured program.
        decomposed: The decomposed program.
    """
    by_name = dict(_origins_of_nodes(captured, decomposed))
    made_for = _captured_names(captured, decomposed)
    last = {_noted(node): node for node in model.graph}
    found: dict[ir.Value, Origin] = {}
    for node in model.graph:
        noted = _noted(node)
        for position, value in enumerate(node.outputs):
            origin = _origin_of_name(str(value.name), by_name)
            if origin is None and last[noted] is node:
                origin = _origin_of_result(node, position, noted, by_name)
            # A value inside a translation may have the name of a torch node. A rewritten node may have the metadata of
            # another node, or no metadata.
            rewritten = not noted or _REWRITTEN in node.metadata_props
            if origin is not None and (rewritten or made_for.get(noted) == origin.node):
                found[value] = origin
    return found


def captured_nodes(
    model: ir.Model, captured: torch.export.ExportedProgram, decomposed: torch.export.ExportedProgram
) -> dict[str, str]:
    """The name of the captured node that each node of an ONNX model was made from, by the name of the ONNX node.

    Args:
        model: The model, whose nodes still have torch's metadata; nodes in subgraphs and functions are omitted.
        captured: The captured program.
        decomposed: The decomposed program.
    """
    made_for = _captured_names(captured, decomposed)
    found = {}
    for node in model.graph:
        name = made_for.get(_noted(node))
        if name and node.name:
            found[node.name] = name
    return found


def _captured_names(
    captured: torch.export.ExportedProgram, decomposed: torch.export.ExportedProgram
) -> dict[str, str | None]:
    """The captured node from which each decomposed node was made."""
    graphs = (id(captured.graph),)
    return {
        node.name: captured_name(node.meta, graphs) for node in decomposed.graph.nodes if node.op == "call_function"
    }


def _noted(node: ir.Node) -> str:
    """The name of the decomposed node in the metadata of an ONNX node, or an empty string."""
    noted = _FX_NODE.match(node.metadata_props.get("pkg.torch.onnx.fx_node", ""))
    return noted[1] if noted else ""


def _origin_of_name(name: str, by_name: Mapping[tuple[str, int | None], Origin]) -> Origin | None:
    """Match by name: torch names a value after its node, and one of several results after the node and its index."""
    origin = by_name.get((name, None))
    numbered = _NUMBERED.match(name)
    if origin is None and numbered:
        origin = by_name.get((numbered[1], int(numbered[2])))
    return origin


def _origin_of_result(
    node: ir.Node, position: int, noted: str, by_name: Mapping[tuple[str, int | None], Origin]
) -> Origin | None:
    """Match by position: the last node of an operator, if both have the same number of results."""
    results = len(node.outputs)
    alike = results > 1 and (noted, results - 1) in by_name and (noted, results) not in by_name
    return by_name.get((noted, position)) if alike else None


def _origins_of_nodes(
    captured: torch.export.ExportedProgram, decomposed: torch.export.ExportedProgram
) -> Iterator[tuple[tuple[str, int | None], Origin]]:
    """The captured value of each decomposed value, which is a pair of a node's name and the index of a result."""
    originals = {node.name: node for node in captured.graph.nodes if node.op == "call_function"}
    graphs = (id(captured.graph),)
    made: dict[torch.fx.Node, list[torch.fx.Node]] = {}
    for node in decomposed.graph.nodes:
        name = captured_name(node.meta, graphs) if node.op == "call_function" else None
        if name in originals:
            made.setdefault(originals[name], []).append(node)
    for original, nodes in made.items():
        for (node, result), index in _results(original, nodes):
            for same in _same_numbers(node, set(nodes)) if result is None else (node,):
                yield (same.name, result), Origin(original.name, index)


def captured_name(meta: Mapping[str, Any], graphs: Collection[int]) -> str | None:
    """The name of the captured node from which a node was made; None if there is not exactly one.

    Args:
        meta: The metadata of the node.
        graphs: The identities of the captured graphs.
    """
    made_from = meta.get("from_node")
    while made_from:
        if made_from[-1].graph_id in graphs:
            return str(made_from[-1].name)
        made_from = made_from[-1].from_node
    return None


def _results(
    original: torch.fx.Node, nodes: list[torch.fx.Node]
) -> Iterator[tuple[tuple[torch.fx.Node, int | None], int | None]]:
    """The result nodes of a decomposition, and the indices of the corresponding original results."""
    wanted = original.meta.get("val")
    mine = set(nodes)
    if isinstance(wanted, tuple | list):
        # A single operator with several results, which torch unpacks with getitem.
        whole = [n for n in nodes if isinstance(n.meta.get("val"), tuple | list) and n.target == original.target]
        for node in whole if len(whole) == 1 else ():
            for index, value in enumerate(node.meta["val"]):
                if index < len(wanted) and _alike(value, wanted[index]):
                    yield (node, index), index
            for taken in node.users:
                taken_index: Any = taken.args[1] if taken.target is operator.getitem else None
                if isinstance(taken_index, int) and _alike(taken.meta.get("val"), wanted[taken_index]):
                    yield (taken, None), taken_index
        if not whole:
            # Results of nodes of their own, which their types tell apart: a maximum and its index.
            outside = [node for node in nodes if any(user not in mine for user in node.users)]
            for node in outside:
                alike = [index for index, value in enumerate(wanted) if _alike(node.meta.get("val"), value)]
                rivals = [other for other in outside if alike and _alike(other.meta.get("val"), wanted[alike[0]])]
                if len(alike) == len(rivals) == 1:
                    yield (node, None), alike[0]
        return
    seen_outside = [node for node in nodes if any(user not in mine for user in node.users)]
    if len(seen_outside) == 1 and _alike(seen_outside[0].meta.get("val"), wanted):
        yield (seen_outside[0], None), None


def _same_numbers(node: torch.fx.Node, among: Collection[torch.fx.Node]) -> Iterator[torch.fx.Node]:
    """The node and earlier nodes with the same value: an optimizer removes nodes that have no effect."""
    yield node
    while _name_of(node.target) in _SAME_NUMBERS:
        before = node.args[0]
        if (
            not isinstance(before, torch.fx.Node)
            or before not in among
            or not _identical(before.meta.get("val"), node.meta.get("val"))
        ):
            return
        node = before
        yield node


def _name_of(target: Any) -> str:
    return target._schema.name.partition("::")[2] if isinstance(target, torch._ops.OpOverload) else ""


def _alike(one: Any, other: Any) -> bool:
    """Whether two values of different graphs may be the same, by type, rank and known sizes."""
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return isinstance(one, int | float | bool | torch.SymInt) and isinstance(other, type(one))
    sizes = zip(one.shape, other.shape, strict=False)
    known = all(a == b for a, b in sizes if isinstance(a, int) and isinstance(b, int))
    return one.dtype == other.dtype and one.ndim == other.ndim and known


def _identical(one: Any, other: Any) -> bool:
    """Whether two values of one graph have the same type and the same symbolic shape."""
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return False
    return one.dtype == other.dtype and list(map(str, one.shape)) == list(map(str, other.shape))
