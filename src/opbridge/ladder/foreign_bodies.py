"""Bodies for the custom nodes of an existing model, from declarations by ``body_for`` and ``operator``.

The body of a node is the declared Python function, exported for the node's element types, rank and attributes. Like the
declarations, it requires PyTorch.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from opbridge.capture.capture import capture
from opbridge.catalog.declare.operator import without_kernels
from opbridge.errors import InputError, OpbridgeError, TranslationError
from opbridge.ladder.plan import plan
from opbridge.ladder.translate import translate
from opbridge.onnx_model.infer import fill_types
from opbridge.onnx_model.opsets import convert_opset
from opbridge.onnx_model.scopes import all_nodes
from opbridge.torch_graph import internals as torch_internals

if TYPE_CHECKING:
    import torch

    from opbridge.catalog.declare.catalog import Catalog
    from opbridge.catalog.declare.spec import OpSpec

__all__ = ["attach_bodies"]

_MOST_KEPT = 256


def attach_bodies(model: ir.Model, catalog: Catalog) -> dict[str, OpSpec]:
    """Add the declared function bodies of custom nodes that have no body, in place.

    Args:
        model: The model, to which functions and the types inferred from them are added.
        catalog: The declarations.

    Returns:
        The declarations that were used, by ``"domain::Op"``.

    Raises:
        TranslationError: A body can't be exported for a node.
        InputError: The types of a node's inputs are not known.
    """
    specs = {spec.target: spec for spec in catalog.specs if spec.rung == "function"}
    used: dict[str, OpSpec] = {}
    bodies: dict[Any, list[_Body]] = {}
    own = frozenset(model.functions)
    for node in list(model.graph.all_nodes()):
        target = f"{node.domain}::{node.op_type}"
        spec = specs.get(target)
        if spec is None or node.op_identifier() in own:
            continue
        if any(value is not None and (value.dtype is None or value.shape is None) for value in node.inputs):
            fill_types(model)
        made = bodies.setdefault((target, _kinds(node)), [])
        body = next((body for body in made if body.fits(node)), None)
        if body is None:
            number = sum(len(others) for (name, _), others in bodies.items() if name == target)
            overload = f"variant_{number + 1}" if number else ""
            exported = _exported(node, spec, catalog, model.opset_imports.get("", 18))
            body = _Body(_as_function(exported.model.clone(), node, overload), exported.program)
            made.append(body)
            model.functions[body.function.identifier()] = body.function
        node.overload = body.function.overload
        used[target] = spec
    if used:
        for domain in {target.partition("::")[0] for target in used}:
            model.opset_imports.setdefault(domain, 1)
        model.ir_version = max(model.ir_version, 10 if any(node.overload for node in model.graph.all_nodes()) else 8)
        fill_types(model)
    return used


def _kinds(node: ir.Node) -> tuple[Any, ...]:
    """A key that is equal for nodes that share a body: element types, ranks and attributes."""
    types = tuple(
        None if value is None else (value.dtype, None if value.shape is None else len(value.shape))
        for value in node.inputs
    )
    return types, tuple(sorted((name, _value_key(attribute)) for name, attribute in node.attributes.items()))


def _value_key(attribute: ir.Attr) -> str:
    if attribute.type is ir.AttributeType.TENSOR:
        tensor = attribute.value
        return f"{tensor.dtype} {tuple(tensor.shape)} {tensor.tobytes().hex()}"
    return f"{attribute.type} {attribute.value!r}"


@dataclasses.dataclass(frozen=True)
class _Body:
    """A body, and the program it was made from, which determines the sizes that it supports.

    Attributes:
        function: The ONNX function.
        program: The captured program.
    """

    function: ir.Function
    program: torch.export.ExportedProgram

    def fits(self, node: ir.Node) -> bool:
        """Whether the body supports the sizes of another node."""
        import torch

        inputs = [value for value in node.inputs if value is not None]
        names = set(self.program.graph_signature.user_inputs)
        holders = (entry for entry in self.program.graph.find_nodes(op="placeholder") if entry.name in names)
        captured = [holder.meta["val"] for holder in holders if isinstance(holder.meta.get("val"), torch.Tensor)]
        is_open = all(
            isinstance(actual, int) or not isinstance(mine, int)
            for tensor, value in zip(captured, inputs, strict=True)
            for mine, actual in zip(tensor.shape, value.shape or (), strict=True)
        )
        return is_open and torch_internals.takes(self.program.module(), _examples(node))


@dataclasses.dataclass(frozen=True)
class _Exported:
    """A body as a separate model, and the program it was made from."""

    model: ir.Model
    program: torch.export.ExportedProgram


_kept: dict[Any, _Exported] = {}
"""A cache of the catalog's bodies: capturing a loop takes seconds. A user's bodies may change between exports."""


def _exported(node: ir.Node, spec: OpSpec, catalog: Catalog, opset: int) -> _Exported:
    """The body for the node, which is cached for operators of the catalog."""
    examples = _examples(node)
    if catalog.user:
        return _export(node, spec, catalog, examples, opset)
    sizes = tuple(
        None if value is None else tuple(zip(example.shape, map(_is_open, value.shape), strict=True))
        for value, example in zip(node.inputs, examples, strict=True)
    )
    key = (spec, opset, _kinds(node), sizes)
    exported = _kept.get(key)
    if exported is None:
        exported = _export(node, spec, catalog, examples, opset)
        if len(_kept) >= _MOST_KEPT:
            _kept.pop(next(iter(_kept)), None)
        _kept[key] = exported
    return exported


def _export(node: ir.Node, spec: OpSpec, catalog: Catalog, examples: tuple[Any, ...], opset: int) -> _Exported:
    function = getattr(spec.function, "body", spec.function)
    attributes = {name: _python(attribute) for name, attribute in node.attributes.items()}
    shapes = [None if value is None else _dynamic(value) for value in node.inputs]
    try:
        with without_kernels():
            # The model may relate sizes that the node does not: the two axes of a square matrix.
            captured = capture(
                _module(function, attributes), examples, {}, dynamic_shapes=(tuple(shapes),), check_sizes=False
            )
            newest = max(opset, 18)
            made = translate(plan(captured.program, catalog, newest_opset=newest)).model
            if any((inner.domain, inner.op_type) == (node.domain, node.op_type) for inner in all_nodes(made)):
                # The body calls the operator that a translation of the user maps to this node.
                others = tuple(other for other in catalog.user if other.rung != "translate")
                without = dataclasses.replace(catalog, user=others)
                made = translate(plan(captured.program, without, newest_opset=newest)).model
    except OpbridgeError as error:
        raise TranslationError(
            f"The body of {node.domain}::{node.op_type} at {spec.source} can't be exported for the node "
            f"{node.name!r}: {error.message}",
            fix="write it for the node's inputs in order, then its attributes by name; in torch operators only.",
            details=error.details,
        ) from error
    # A declared operator that the body calls becomes a function too, but a function of the model must not call others.
    converted = convert_opset(InlinePass()(made).model, opset)
    if converted.unexpressed:
        lost = converted.unexpressed[0]
        raise TranslationError(
            f"The body of {node.domain}::{node.op_type} at {spec.source} can't be written in opset {opset}: "
            f"{lost.operator}: {lost.reason}",
            fix="ask for a newer opset.",
        )
    return _Exported(converted.model, captured.program)


def _module(function: Callable[..., Any], attributes: Mapping[str, Any]) -> Any:
    """A module that calls a declared body with the attributes of one node."""
    import torch

    class Body(torch.nn.Module):
        def forward(self, *values: Any) -> Any:
            return function(*values, **attributes)

    return Body()


def _python(attribute: ir.Attr) -> Any:
    value = attribute.value
    if attribute.type is ir.AttributeType.TENSOR:
        import torch

        return torch.from_numpy(value.numpy().copy())
    return list(value) if isinstance(value, tuple) else value


def _dynamic(value: ir.Value) -> dict[int, Any]:
    """A body must support every size that the model leaves dynamic, and should support others."""
    from torch.export import Dim

    sizes = enumerate(value.shape or ())
    return {axis: Dim.DYNAMIC if _is_open(size) else Dim.AUTO for axis, size in sizes if size not in (0, 1)}


def _is_open(size: Any) -> bool:
    return not isinstance(size, int)


def _examples(node: ir.Node) -> tuple[Any, ...]:
    # torch would equate a dynamic size with a fixed size of the same number.
    fixed = {size for value in node.inputs if value is not None for size in value.shape or () if not _is_open(size)}
    unused = (number for number in itertools.count(3) if number not in fixed)
    numbers: dict[str, int] = {}
    return tuple(_example(node, value, numbers, unused) for value in node.inputs)


def _example(node: ir.Node, value: ir.Value | None, numbers: dict[str, int], unused: Iterator[int]) -> Any:
    """A tensor like the value; ``numbers`` stores a number for each size that has only a name."""
    import torch

    if value is None:
        return None
    if value.dtype is None or value.shape is None:
        raise InputError(
            f"The node {node.name!r} ({node.domain}::{node.op_type}) can't be given a body: the type of its input "
            f"{value.name!r} is not known.",
            fix="write the types into the model (onnx.shape_inference.infer_shapes, or value_info).",
        )
    sizes = []
    for axis, size in enumerate(value.shape):
        if _is_open(size):
            name = size.value or f"{value.name} {axis}"
            if name not in numbers:
                numbers[name] = next(unused)
            size = numbers[name]
        sizes.append(size)
    return torch.zeros(sizes, dtype=_torch_dtype(value.dtype))


def _torch_dtype(dtype: ir.DataType) -> Any:
    import torch

    return getattr(torch, "bool" if dtype is ir.DataType.BOOL else str(dtype.numpy()))


def _as_function(made: ir.Model, node: ir.Node, overload: str) -> ir.Function:
    graph = made.graph
    first = next(iter(graph), None)
    for value in sorted(graph.initializers.values(), key=lambda value: str(value.name)):
        constant = ir.Node("", "Constant", [], [ir.AttrTensor("value", value.const_value)], name=f"c_{value.name}")
        constant.outputs[0].name, constant.outputs[0].type = value.name, value.type
        constant.outputs[0].shape = value.shape
        if first is not None:
            graph.insert_before(first, constant)
        else:
            graph.append(constant)  # The body is this constant.
        value.replace_all_uses_with(constant.outputs[0], replace_graph_outputs=True)
    graph.initializers.clear()
    _align_inputs(graph, node)
    return ir.Function(node.domain, node.op_type, overload, graph=graph, attributes=[])


def _align_inputs(graph: ir.Graph, node: ir.Node) -> None:
    """Add one formal input per input of the node; that of an absent input has an unused name."""
    present = iter(list(graph.inputs))
    aligned: Sequence[ir.Value] = [
        ir.Value(name=f"absent_{position}") if value is None else next(present)
        for position, value in enumerate(node.inputs)
    ]
    graph.inputs.clear()
    graph.inputs.extend(aligned)
