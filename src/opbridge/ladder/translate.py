"""Stage 3, link 2: ``translate`` a planned program to ONNX, through the public ``torch.onnx.export``."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping

import onnx_ir as ir
import onnx_ir.passes.common as common_passes
import torch

from opbridge.capture.capture import Captured
from opbridge.engines.passes.canonical_loops import CanonicalLoopsPass
from opbridge.engines.passes.counted_axes import CountedAxesPass
from opbridge.engines.passes.fixed_ranks import FixedRanksPass
from opbridge.engines.passes.folded_batch_norms import FoldedBatchNormsPass
from opbridge.engines.passes.fused_weights import FUSED, FusedWeightsPass
from opbridge.engines.passes.owned_constants import OwnedConstantsPass
from opbridge.engines.passes.transposed_vectors import TransposedVectorsPass
from opbridge.engines.passes.unchanged_shapes import UnchangedShapesPass
from opbridge.engines.passes.vector_scales import VectorScalesPass
from opbridge.engines.passes.wide_scatter import WideScatterPass
from opbridge.engines.versions import SYMBOLIC
from opbridge.errors import OpbridgeError, TranslationError, first_line
from opbridge.ladder.bodies import cut_into_functions, name_overloads
from opbridge.ladder.custom_calls import CustomCall
from opbridge.ladder.hooks import AROUND_MODEL, AROUND_TRANSLATION
from opbridge.ladder.plan import Plan
from opbridge.ladder.valid_translation import check_translation
from opbridge.onnx_model.scopes import all_nodes, scopes
from opbridge.torch_graph import internals as torch_internals
from opbridge.torch_graph.onnxscript_internals import exact_constants, nested_subgraphs, quick_matching
from opbridge.torch_graph.origins import Origin, captured_nodes, origins_of_values
from opbridge.torch_graph.reuse import reusing_registry, with_known_results, without_second_decomposition
from opbridge.torch_graph.silence import silenced
from opbridge.torch_graph.sources import source_of_node, source_of_stack_trace
from opbridge.torch_graph.targets import target_key

__all__ = ["Translated", "all_nodes", "translate"]

_PASSES = (
    CanonicalLoopsPass(),
    FixedRanksPass(),
    VectorScalesPass(),
    WideScatterPass(),
    CountedAxesPass(),
    TransposedVectorsPass(),
    UnchangedShapesPass(),
    common_passes.RemoveUnusedNodesPass(),
    common_passes.NameFixPass(),
)
"""The passes on a translated model, in this order; names are unique after the last one."""

IR_VERSION = 10
"""The first IR version with function overloads; ONNX Runtime supports it since 1.18."""


@dataclasses.dataclass(frozen=True)
class Translated:
    """A program translated to ONNX.

    Attributes:
        model: The model, without paths and torch's metadata.
        sources: ``file:line`` in the user's source, by node name.
        targets: The torch operator, such as "aten::add.Tensor", by node name.
        origins: The origins in the captured graph of the values that it also has, by name.
        captured: The node of the captured graph, by node name.
    """

    model: ir.Model
    sources: Mapping[str, str]
    targets: Mapping[str, str]
    origins: Mapping[str, Origin] = dataclasses.field(default_factory=dict)
    captured: Mapping[str, str] = dataclasses.field(default_factory=dict)


def translate(
    plan: Plan, captured: Captured | None = None, *, ir_version: int = IR_VERSION, requested_opset: int | None = None
) -> Translated:
    """Translate a planned program to ONNX.

    Args:
        plan: A plan without missing operators.
        captured: The capture with the names of inputs, outputs and dimensions; None keeps torch's names.
        ir_version: The ONNX IR version of the result.
        requested_opset: The opset that the user requests, if it is older than the plan's; ``symbolic`` functions emit
            nodes of this opset.

    Raises:
        TranslationError: A mapping fails, or writes a node that is not valid; the message names the operator and the
            line in the user's source.
    """
    with contextlib.ExitStack() as stack:
        counting = [stack.enter_context(around()) for around in AROUND_MODEL]
        name_overloads(_custom_calls(plan))
        functions = _functions(plan, plan.opset, requested_opset)
        model = _export(plan, plan.opset, requested_opset)
        for finish in counting:
            finish(model)
    origins = {} if captured is None else origins_of_values(model, captured.program, plan.program)
    for function in functions:
        model.functions[function.identifier()] = function
        for domain, version in function.opset_imports.items():
            model.opset_imports.setdefault(domain, version)
    # ONNX Runtime does not find the overload of a call inside a function body.
    called_inside = [node for function in functions for node in ir.traversal.RecursiveGraphIterator(function)]
    _mangle_overloads(model, called_inside if ir_version >= IR_VERSION else all_nodes(model))
    model.opset_imports[""] = plan.opset
    model.ir_version = ir_version
    if captured is not None:
        _rename(model, captured)
    for change in _PASSES:
        change(model)
    for function in model.functions.values():
        for node in function.all_nodes():
            # Sources and operators are looked up by node name, here and for an engine's refusals.
            node.name = f"{'.'.join(filter(None, (function.name, function.overload)))}/{node.name}"
    sources, targets = _provenance(model, plan)
    made_for = {} if captured is None else captured_nodes(model, captured.program, plan.program)
    _strip(model)
    check_translation(model, captured, targets)
    # The values get their final names only above.
    named = {str(value.name): origin for value, origin in origins.items() if value.graph is model.graph}
    return Translated(model, sources, targets, named, made_for)


def _mangle_overloads(model: ir.Model, calls: Iterable[ir.Node]) -> None:
    """Move the overloads of these calls, and of the functions that they call, into the names."""
    for node in calls:
        if node.overload:
            function = model.functions.pop(node.op_identifier(), None)
            node.op_type, node.overload = f"{node.op_type}__{node.overload}", ""
            if function is not None:
                function.name, function.overload = node.op_type, ""
                model.functions[function.identifier()] = function


def _custom_calls(plan: Plan) -> list[CustomCall]:
    """The custom calls of a program and of their bodies, because a model has a single name space of functions."""
    if plan.bodies is None or plan.bodies_plan is None:
        return []
    return [*plan.bodies.calls, *_custom_calls(plan.bodies_plan)]


def _functions(plan: Plan, opset: int, requested_opset: int | None) -> list[ir.Function]:
    if plan.bodies is None or plan.bodies_plan is None:
        return []
    nested = _functions(plan.bodies_plan, opset, requested_opset)
    model = _export(plan.bodies_plan, opset, requested_opset)
    return [*nested, *cut_into_functions(model, plan.bodies)]


def _export(plan: Plan, opset: int, requested_opset: int | None) -> ir.Model:
    try:
        with (
            silenced(),
            reusing_registry(),
            torch_internals.translating(plan.program),
            without_second_decomposition(),
            with_known_results(),
            exact_constants(),
            quick_matching(),
            nested_subgraphs(),
            contextlib.ExitStack() as stack,
        ):
            finishing = [
                stack.enter_context(around(plan.program, opset, requested_opset)) for around in AROUND_TRANSLATION
            ]
            program = torch.onnx.export(
                plan.program,
                (),
                custom_translation_table=dict(plan.translations),
                opset_version=opset,
                verbose=False,
                dynamo=True,
            )
    except OpbridgeError:
        raise
    except Exception as error:
        raise _failure(plan, error) from error
    assert program is not None
    for finish in finishing:
        finish(program.model)
    FoldedBatchNormsPass()(program.model)
    OwnedConstantsPass()(program.model)
    FusedWeightsPass()(program.model)
    return program.model


def _failure(plan: Plan, error: Exception) -> TranslationError:
    """An error that names the operator whose mapping failed, from torch's chain of exceptions."""
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None:
        chain.append(cause)
        cause = cause.__cause__
    for item in chain:
        if isinstance(item, TranslationError):
            return item
    text = "\n".join(str(item) for item in chain)
    found = re.search(r"Error when translating node %(\w+)", text)
    node = _node_named(plan, found.group(1)) if found else None
    root = first_line(chain[-1])
    if node is None:
        return TranslationError(
            f"torch.onnx can't translate the graph: {type(chain[-1]).__name__}: {root}",
            fix="look for the operator in the log and give it a mapping with opbridge.translation or "
            "opbridge.decomposition.",
            details=text,
        )
    source = source_of_node(node)
    target = str(node.target).replace(".", "::", 1)
    return TranslationError(
        f"The mapping of {target} to ONNX fails{f' at {source}' if source else ''}: {type(chain[-1]).__name__}: {root}",
        fix=f"give it another mapping: @opbridge.decomposition({target!r}) or @opbridge.translation({target!r}).",
        details=text,
        target=str(target_key(node.target)),
    )


def _node_named(plan: Plan, name: str) -> torch.fx.Node | None:
    for module in plan.program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                if node.name == name:
                    return node
    return None


def _all_values(model: ir.Model) -> Iterator[ir.Value]:
    yield from model.graph.initializers.values()
    for scope in scopes(model):
        yield from scope.inputs
    for node in all_nodes(model):
        yield from node.outputs


def _rename(model: ir.Model, captured: Captured) -> None:
    """Rename inputs, outputs and dynamic dimensions as captured."""
    interface_names = {*captured.input_names, *captured.output_names}
    interface = {id(value) for value in (*model.graph.inputs, *model.graph.outputs)}
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        for value in node.outputs:
            if value.name in interface_names and id(value) not in interface:
                value.name = f"{value.name}_inner"
    for name in sorted(interface_names & set(model.graph.initializers)):
        initializer = model.graph.initializers.pop(name)
        initializer.name = f"{name}_inner"
        model.graph.initializers[initializer.name] = initializer
    for value, name in zip(model.graph.inputs, captured.input_names, strict=True):
        value.name = name
    for value, name in zip(model.graph.outputs, captured.output_names, strict=True):
        value.name = name
    for value in _all_values(model):
        if value.shape is not None:
            value.shape = ir.Shape([_renamed(size, captured.dimension_names) for size in value.shape])


def _renamed(size: int | ir.SymbolicDim, names: Mapping[str, str]) -> int | str | None:
    if isinstance(size, int):
        return size
    text = size.value
    if text and text.isdecimal():
        # A dimension that torch specialized during the capture is a symbol with one value.
        return int(text)
    return re.sub(r"[A-Za-z_]\w*", lambda found: names.get(found.group(), found.group()), text) if text else None


_METADATA = "pkg.torch.onnx."


def _provenance(model: ir.Model, plan: Plan) -> tuple[dict[str, str], dict[str, str]]:
    sources: dict[str, str] = {}
    targets: dict[str, str] = {}
    for node in all_nodes(model):
        source = source_of_stack_trace(node.metadata_props.get(f"{_METADATA}stack_trace", ""))
        if source is not None and node.name:
            sources[node.name] = str(source)
        described = node.metadata_props.get(f"{_METADATA}fx_node", "")
        target = re.search(r"target=torch\.ops\.(\w+)\.([\w.]+)", described)
        if target and node.name:
            key = f"{target.group(1)}::{target.group(2)}"
            if "batch_norm" in key and node.op_type in FUSED:
                key = _key_of_normalized(plan, described) or key
            targets[node.name] = plan.aliases.get(key, key)
    return sources, targets


def _key_of_normalized(plan: Plan, described: str) -> str | None:
    """The operator whose result a batch normalization reads.

    torch.onnx fuses the normalization into it, and notes on the fused node that it is the normalization.
    """
    name = re.match(r"%(\w+)", described)
    node = _node_named(plan, name.group(1)) if name else None
    normalized = node.args[0] if node is not None else None
    return str(target_key(normalized.target)) if isinstance(normalized, torch.fx.Node) else None


def _strip(model: ir.Model) -> None:
    """Remove torch's metadata, which contains paths and therefore differs between machines."""
    by_symbolic = {node: node.metadata_props[SYMBOLIC] for node in all_nodes(model) if SYMBOLIC in node.metadata_props}
    common_passes.ClearMetadataAndDocStringPass()(model)
    for scope in scopes(model):
        scope.metadata_props.clear()
    for value in _all_values(model):
        value.metadata_props.clear()
    for node in all_nodes(model):
        node.version = None  # The model's version of the domain applies to every node.
    for node, opset in by_symbolic.items():
        node.metadata_props[SYMBOLIC] = opset
    model.metadata_props.clear()
    model.producer_version = None
    model.producer_name = "opbridge"
