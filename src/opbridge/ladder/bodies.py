"""Function bodies: the ONNX functions of custom-domain nodes, with which they run in any engine.

All bodies of a model are captured as one program, because this takes one export instead of one per operator. The
program's inputs are those of the bodies in order, and so are its outputs. After translation it is cut into functions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import onnx_ir as ir
import torch

from opbridge.errors import OpbridgeError, TranslationError, described_error
from opbridge.ladder.custom_calls import CustomCall, Slot
from opbridge.torch_graph import internals as torch_internals

__all__ = ["Bodies", "capture_bodies", "cut_into_functions"]


@dataclasses.dataclass(frozen=True)
class Bodies:
    """The bodies of a model's custom nodes as one program.

    Attributes:
        program: The captured program of all bodies.
        calls: The calls that the bodies belong to, in the order of the program's inputs and outputs.
    """

    program: torch.export.ExportedProgram
    calls: tuple[CustomCall, ...]


class _SideBySide(torch.nn.Module):
    """Runs the body of each call on its own inputs."""

    def __init__(self, calls: Sequence[CustomCall]) -> None:
        super().__init__()
        self._calls = calls

    def forward(self, *groups: tuple[Any, ...]) -> tuple[Any, ...]:
        results: list[Any] = []
        for call, values in zip(self._calls, groups, strict=True):
            result = call.call(_body(call), values)
            results.extend(result if isinstance(result, (tuple, list)) else (result,))
        return tuple(results)


def _body(call: CustomCall) -> Any:
    return getattr(call.spec.function, "body", call.spec.function)


def capture_bodies(calls: Sequence[CustomCall]) -> Bodies:
    """Capture the bodies for any sizes if their code allows it, otherwise for the sizes in the model.

    Each use of an operator that a captured body does not fit gets a separate body: ``calls`` are split, and the nodes
    get the new targets.

    Raises:
        TranslationError: A body can't be captured; the message names the operator and its declaration.
    """
    generic = _capture(calls, any_size=True)
    if generic is None:
        for call in calls:
            if _capture([call], any_size=True) is None:
                call.any_size = False
        split = [part for call in calls for part in ([call] if call.any_size else call.split_by_size())]
    else:
        fits = _fitting(generic, calls)
        if all(fits):
            return Bodies(generic, tuple(calls))
        split = [
            part for call, fit in zip(calls, fits, strict=True) for part in ([call] if fit else call.split_by_size())
        ]
    program = _capture(split, any_size=False)
    if program is None:
        raise _failure(split)
    return Bodies(program, tuple(split))


def _capture(calls: Sequence[CustomCall], any_size: bool) -> torch.export.ExportedProgram | None:
    """The program of the bodies; None if one of them can't be captured."""
    groups = tuple(tuple(_example(value) for value in call.examples) for call in calls)
    shapes = tuple(tuple(_dimensions(value, any_size and call.any_size) for value in call.examples) for call in calls)
    try:
        with torch_internals.exclusively, torch.no_grad():
            return torch.export.export(_SideBySide(calls), groups, dynamic_shapes=(shapes,), strict=False)
    except OpbridgeError:
        raise
    except Exception as error:
        if not any_size:
            for call in calls:
                if len(calls) == 1:
                    raise _failure(calls, error) from error
                _capture([call], any_size)
        return None


def _failure(calls: Sequence[CustomCall], error: Exception | None = None) -> TranslationError:
    call = calls[0]
    reason = described_error(error) if error else "unknown error"
    return TranslationError(
        f"The body of {call.domain}::{call.name} at {call.spec.source} can't be captured: {reason}",
        fix="write the body with torch operators only, without reading a tensor's contents in Python; or give another "
        "body with its .set_body or with opbridge.body_for.",
        details=str(error),
    )


def _example(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        sizes = [_size(size, axis) for axis, size in enumerate(value.shape)]
        return torch.empty(sizes, dtype=value.dtype)
    return _size(value, 0) if isinstance(value, torch.SymInt) else value


def _size(size: Any, axis: int) -> int:
    """A concrete size for a dimension: the size in the example, or a small number for a data-dependent size."""
    if not isinstance(size, torch.SymInt):
        return int(size)
    return int(size.node.hint) if size.node.has_hint() else 3 + axis  # type: ignore[arg-type]


def _dimensions(value: Any, any_size: bool) -> Any:
    if isinstance(value, torch.SymInt):
        return torch.export.Dim.DYNAMIC
    if not isinstance(value, torch.Tensor):
        return None
    return {
        # A body must support every size that the model leaves dynamic, and should support others.
        axis: torch.export.Dim.DYNAMIC if isinstance(size, torch.SymInt) else torch.export.Dim.AUTO
        for axis, size in enumerate(value.shape)
        if isinstance(size, torch.SymInt) or (any_size and size > 1)
    }


def _placeholders(program: torch.export.ExportedProgram) -> list[torch.fx.Node]:
    names = set(program.graph_signature.user_inputs)
    return [node for node in program.graph.nodes if node.op == "placeholder" and node.name in names]


def _fitting(program: torch.export.ExportedProgram, calls: Sequence[CustomCall]) -> list[bool]:
    """For each call, whether its captured body supports the sizes of every use."""
    values = iter(node.meta["val"] for node in _placeholders(program))
    examples = [tuple(_example(value) for value in call.examples) for call in calls]
    module = program.module()
    fits = []
    for position, call in enumerate(calls):
        captured = [next(values) for _ in call.examples]
        others = {_sizes(site): site for site in call.sites if _sizes(site) != _sizes(call.examples)}
        fits.append(
            all(_stays_dynamic(captured, site) for site in call.sites)
            and all(
                torch_internals.takes(
                    module, (*examples[:position], tuple(map(_example, site)), *examples[position + 1 :])
                )
                for site in others.values()
            )
        )
    return fits


def _sizes(site: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(tuple(map(str, value.shape)) if isinstance(value, torch.Tensor) else None for value in site)


def _stays_dynamic(captured: Sequence[Any], site: Sequence[Any]) -> bool:
    """Whether no dynamic size of a use was captured as a constant."""
    pairs = [(mine, theirs) for mine, theirs in zip(captured, site, strict=True) if isinstance(mine, torch.Tensor)]
    return not any(
        str(size).isdigit() and isinstance(actual, torch.SymInt)
        for mine, theirs in pairs
        for size, actual in zip(mine.shape, theirs.shape, strict=True)
    )


def cut_into_functions(model: ir.Model, bodies: Bodies) -> list[ir.Function]:
    """Cut the translated program of the bodies into one ONNX function per call."""
    inputs, outputs = iter(list(model.graph.inputs)), iter(list(model.graph.outputs))
    functions = []
    for call in bodies.calls:
        own_inputs = [next(inputs) for _ in call.examples]
        own_outputs = [next(outputs) for _ in range(call.outputs)]
        graph = ir.convenience.extract(model.graph, own_inputs, own_outputs)
        functions.append(_function(graph, call, model.opset_imports))
    return functions


def _function(graph: ir.Graph, call: CustomCall, opset_imports: Any) -> ir.Function:
    # The functions have no particular order.
    for value in sorted(graph.initializers.values(), key=lambda value: str(value.name)):
        constant = ir.Node(
            "", "Constant", [], [ir.AttrTensor("value", value.const_value)], name=f"constant_{value.name}"
        )
        constant.outputs[0].name = f"{value.name}_constant"
        constant.outputs[0].dtype = value.dtype
        constant.outputs[0].shape = value.shape
        if len(graph) > 0:
            graph.insert_before(graph[0], constant)
        else:
            graph.append(constant)  # The body is this constant.
        value.replace_all_uses_with(constant.outputs[0], replace_graph_outputs=True)
    graph.initializers.clear()
    present = list(graph.inputs)
    aligned = [ir.Value(name=f"absent_{i}") if v is None else v for i, v in enumerate(call.onnx_inputs(present))]
    graph.inputs.clear()
    graph.inputs.extend(aligned)
    _name_interface(graph, call)
    used = {node.domain for node in ir.traversal.RecursiveGraphIterator(graph)} | {""}
    graph.opset_imports.clear()
    graph.opset_imports.update({domain: opset_imports.get(domain, 1) for domain in sorted(used)})
    return ir.Function(call.domain, call.name, call.function_overload, graph=graph, attributes=[])


def _name_interface(graph: ir.Graph, call: CustomCall) -> None:
    """Name the function's inputs after the operator's arguments, and number its outputs."""
    taken = {output.name for node in ir.traversal.RecursiveGraphIterator(graph) for output in node.outputs}
    names = [argument.name for argument in call.overload._schema.arguments]
    slots = [i for i, item in enumerate(call.template) if isinstance(item, Slot) or item is None]
    if len(slots) == len(graph.inputs):
        for value, index in zip(graph.inputs, slots, strict=True):
            value.name = names[index] if names[index] not in taken else f"{names[index]}_in"


def name_overloads(calls: Sequence[CustomCall]) -> None:
    """Give calls of an operator that need different bodies different overload names, which are readable and stable."""
    for group in _grouped(calls):
        for call, name in zip(group, _overload_names(group), strict=True):
            call.function_overload = name


def _grouped(calls: Sequence[CustomCall]) -> Iterator[list[CustomCall]]:
    groups: dict[tuple[str, str], list[CustomCall]] = {}
    for call in calls:
        groups.setdefault((call.domain, call.name), []).append(call)
    yield from groups.values()


def _overload_names(group: Sequence[CustomCall]) -> list[str]:
    if len(group) == 1:
        return [""]
    names = ["_".join(_type_name(value) for value in call.examples) or "none" for call in group]
    seen: dict[str, int] = {}
    result = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        result.append(name if names.count(name) == 1 else f"{name}_{seen[name]}")
    return result


def _type_name(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return type(value).__name__.lower()
    return f"{str(value.dtype).removeprefix('torch.')}_{value.dim()}d"
