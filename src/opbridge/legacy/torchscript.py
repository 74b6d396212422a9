"""The boundary around TorchScript's graph: the only file that reads the graph internals of torch's old exporter.

A symbolic function runs on a real ``torch._C.Graph`` inside the old exporter's own graph context, so that everything it
uses is there. The old exporter's own passes and serializer then turn the small graph into an ONNX model.

``tests/legacy/test_legacy_context.py`` checks every internal that is used here:

* ``torch._C.Graph``, ``TensorType``, ``NoneType``, ``ListType``, ``Value``, ``Node``: the graph and its types.
* ``torch.onnx._internal.torchscript_exporter.jit_utils.GraphContext``: the ``g`` of a symbolic function.
* ``..._globals.GLOBALS``: the opset and the settings that ``symbolic_helper`` and ``symbolic_opset9`` to 20 read.
* ``..._type_utils.JitScalarType``: the numbers of TorchScript's element types.
* the passes that ``_run_passes`` calls: type promotion, peephole, dead code, constant folding, shape inference.
* ``Graph._export_onnx``: the serializer.
* ``_get_tracing_state`` and ``_set_tracing_state``: what old code asks to know whether it is traced.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import onnx
import onnx_ir as ir
import torch
from torch import _C

from opbridge.legacy.fragment import Fragment, Slot, TensorInput, restore_inputs, return_inputs
from opbridge.legacy.target import Target
from opbridge.legacy.validity import check_node, is_kept
from opbridge.onnx_model.names import KEPT_DOMAIN

__all__ = ["answer_as_tracer", "build"]


def answer_as_tracer(is_traced: Callable[[str], bool]) -> Callable[[], None]:
    """Let the code of some modules find that TorchScript's tracer runs.

    Args:
        is_traced: Whether the tracer seems to run for the code of a module, given by name.

    Returns:
        A function that undoes this.
    """
    core: Any = _C
    before = torch.jit.is_tracing, core._get_tracing_state, core._set_tracing_state
    is_tracing, state, set_state = before

    # torch.compile takes the result and does not trace into the function.
    @torch.compiler.assume_constant_result
    def asks() -> bool:
        return is_tracing() or is_traced(sys._getframe(1).f_globals.get("__name__", ""))

    @torch.compiler.assume_constant_result
    def get() -> Any:
        return state() or ("traced" if is_traced(sys._getframe(1).f_globals.get("__name__", "")) else None)

    def put(value: Any) -> None:
        if not is_traced(sys._getframe(1).f_globals.get("__name__", "")):
            set_state(value)

    def restore() -> None:
        torch.jit.is_tracing, core._get_tracing_state, core._set_tracing_state = before

    torch.jit.is_tracing, core._get_tracing_state, core._set_tracing_state = asks, get, put
    return restore


def build(
    symbolic: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    inputs: Sequence[TensorInput],
    opset: int,
    target: Target,
    registered: bool,
) -> Fragment:
    """Run a symbolic function on TorchScript's graph, and convert the nodes that it adds.

    Args:
        symbolic: The symbolic function, which is called with the graph context and then ``args``.
        args: The positional arguments. A :class:`Slot` stands for each ONNX value, also inside lists.
        kwargs: The keyword arguments, in the same form as ``args``. They never become constants of the graph.
        inputs: The known facts about the values that the slots stand for.
        opset: The opset of the nodes that the symbolic function adds.
        target: The settings of the export.
        registered: Whether arguments that are not ONNX values become constants of the graph. The old exporter passes
            them to a registered symbolic function in this form.

    Raises:
        Exception: Any exception that the symbolic function raises.
    """
    graph = _C.Graph()
    values = _add_inputs(graph, inputs)
    with _settings(opset, target):
        context = _context(graph, opset)
        known = [_known(context, value, given) for value, given in zip(values, inputs, strict=True)]
        convert = _as_graph_value if registered else _as_given
        results = symbolic(
            context,
            *(convert(context, item, known) for item in args),
            **{name: _as_given(context, item, known) for name, item in kwargs.items()},
        )
        remarks = tuple(dict.fromkeys(_check(graph, opset)))
        returned, several = _returned(results)
        for value in returned:
            if value is not None:
                graph.registerOutput(value)
        # The passes erase unused inputs and copy returned ones, so their names are read before.
        names = [value.debugName() for value in values]
        outputs = [value.debugName() for value in returned if value is not None]
        copies = {made.debugName(): index for index, made in enumerate(known) if made is not values[index]}
        initializers = _run_passes(graph, opset, target)
        model = _serialized(graph, initializers, opset, target)
    _correct_strings(model)
    _keep_foreign_nodes(model)
    _add_types(model, graph)
    restore_inputs(model, names, copies)
    return_inputs(model, {position: names.index(name) for position, name in enumerate(outputs) if name in names})
    for function in context.functions:
        model.functions[function.identifier()] = function
    positions = iter(range(len(returned)))
    results = tuple(None if value is None else next(positions) for value in returned)
    return Fragment(model, results, several, remarks=remarks)


def _add_inputs(graph: Any, inputs: Sequence[TensorInput]) -> list[Any]:
    values = []
    dynamic: dict[str, dict[int, str]] = {}
    for index, given in enumerate(inputs):
        name = f"input_{index}"
        value = graph.addInput(name)
        value.setType(_tensor_type(given))
        for axis, size in enumerate(given.shape or ()):
            if size is None:
                dynamic.setdefault(name, {})[axis] = f"{name}_{axis}"
        values.append(value)
    _C._jit_pass_onnx_set_dynamic_input_shape(graph, dynamic, [value.debugName() for value in values])
    return values


def _tensor_type(given: TensorInput) -> Any:
    kind: Any = _C.TensorType
    if given.dtype is None:
        return kind.get()
    dtype = ir.tensor_adapters.to_torch_dtype(given.dtype)
    if given.shape is None:
        return kind.get().with_dtype(dtype).with_device(torch.device("cpu"))
    sizes = [1 if size is None else size for size in given.shape]
    return kind.create_from_tensor(torch.empty((), dtype=dtype).expand(sizes)).contiguous()


@contextlib.contextmanager
def _settings(opset: int, target: Target) -> Iterator[None]:
    """Set the old exporter's globals as they are during an export, and restore them afterwards."""
    from torch.onnx._internal.torchscript_exporter._globals import GLOBALS

    before = dict(vars(GLOBALS))
    GLOBALS.export_onnx_opset_version = opset
    GLOBALS.in_onnx_export = True
    GLOBALS.training_mode = getattr(torch.onnx.TrainingMode, target.training)
    GLOBALS.operator_export_type = getattr(torch.onnx.OperatorExportTypes, target.operator_export_type)
    GLOBALS.export_training = target.training == "TRAINING"
    # Old code, such as mmcv's copies of symbolic_helper, reads a constant as node["value"].
    _C.Node.__getitem__ = _attribute_of  # type: ignore[attr-defined,method-assign]
    try:
        yield
    finally:
        vars(GLOBALS).update(before)
        del _C.Node.__getitem__  # type: ignore[attr-defined]


@contextlib.contextmanager
def _without_inference() -> Iterator[None]:
    from torch.onnx._internal.torchscript_exporter._globals import GLOBALS

    before, GLOBALS.onnx_shape_inference = GLOBALS.onnx_shape_inference, False
    try:
        yield
    finally:
        GLOBALS.onnx_shape_inference = before


def _attribute_of(node: Any, name: str) -> Any:
    return getattr(node, node.kindOf(name))(name)


def _context(graph: Any, opset: int) -> Any:
    """Return the old exporter's graph context; its ``onnxscript_op`` keeps the function instead of registering it."""
    return _context_class()(
        graph=graph,
        block=graph.block(),
        opset=opset,
        original_node=graph.param_node(),
        params_dict={},
        env={},
        values_in_env=set(),
        new_nodes=[],
    )


@functools.cache
def _context_class() -> type:
    from torch.onnx._internal.torchscript_exporter.jit_utils import GraphContext

    @dataclasses.dataclass
    class Context(GraphContext):
        functions: list[ir.Function] = dataclasses.field(default_factory=list)

        def op(self, opname: str, *raw_args: Any, outputs: int = 1, **kwargs: Any) -> Any:
            # The old exporter makes a Constant from a number that is not a tensor, which its own passes can't read.
            if opname in ("Constant", "onnx::Constant") and not raw_args:
                for key, dtype in (("value_f", torch.float32), ("value_i", torch.int64)):
                    if key in kwargs:
                        kwargs = {"value_t": torch.tensor(kwargs[key], dtype=dtype)}
            try:
                return super().op(opname, *raw_args, outputs=outputs, **kwargs)
            except (RuntimeError, IndexError):
                # torch's inference of shapes fails on some nodes. An invalid one is named when all are checked.
                with _without_inference():
                    return super().op(opname, *raw_args, outputs=outputs, **kwargs)

        def onnxscript_op(self, onnx_fn: Any, *raw_args: Any, outputs: int = 1, **kwargs: Any) -> Any:
            self.functions.append(ir.serde.deserialize_function(onnx_fn.to_function_proto()))
            return self.op(f"{onnx_fn.opset.domain}::{onnx_fn.name}", *raw_args, outputs=outputs, **kwargs)

    return Context


def _known(context: Any, value: Any, given: TensorInput) -> Any:
    """Return the value for the symbolic function: a constant if the old exporter would have passed one."""
    if given.constant is None:
        return value
    made = context.op("Constant", value_t=given.constant)
    made.setDebugName(f"{value.debugName()}_known")
    return made


def _as_given(context: Any, item: Any, values: Sequence[Any]) -> Any:
    if isinstance(item, Slot):
        return values[item.index]
    if isinstance(item, dict):
        return {key: _as_given(context, part, values) for key, part in item.items()}
    if type(item) in (list, tuple):
        return type(item)(_as_given(context, part, values) for part in item)
    return item


def _as_graph_value(context: Any, item: Any, values: Sequence[Any]) -> Any:
    """Return an argument in the form in which the old exporter passes it to a registered symbolic function."""
    if isinstance(item, Slot):
        return values[item.index]
    if item is None or isinstance(item, torch.device):
        return _prim_constant(context, item)
    if isinstance(item, str):
        return context.op("Constant", value_s=item)
    if isinstance(item, torch.dtype):
        item = int(_scalar_types().from_dtype(item))
    if isinstance(item, (list, tuple)) and not _is_numbers(item):
        parts = [_as_graph_value(context, part, values) for part in item]
        made = context.op("prim::ListConstruct", *parts)
        strings = any(isinstance(part, str) for part in item)
        made.setType(_C.ListType.ofStrings() if strings else _C.ListType.ofTensors())
        return made
    return context.op("Constant", value_t=item if isinstance(item, torch.Tensor) else _number(item))


def _scalar_types() -> Any:
    from torch.onnx._internal.torchscript_exporter._type_utils import JitScalarType

    return JitScalarType


def _is_numbers(items: Sequence[Any]) -> bool:
    """Return whether TorchScript represents a list as one constant: it has only numbers, all known."""
    return bool(items) and all(isinstance(item, (bool, int, float)) for item in items)


def _number(item: Any) -> torch.Tensor:
    """Return TorchScript's constant for a number or a list: a single float is a double, a list has the default type."""
    return torch.tensor(item, dtype=torch.float64) if isinstance(item, float) else torch.tensor(item)


def _prim_constant(context: Any, item: Any) -> Any:
    if item is not None:
        return context.graph.insertConstant(item)
    node = context.graph.insertNode(context.graph.create("prim::Constant"))
    node.output().setType(_C.NoneType.get())
    return node.output()


def _check(block: Any, opset: int) -> Iterator[str]:
    """Check all nodes, and yield the remarks about those that are kept although ONNX does not have them."""
    for node in block.nodes():
        inner = list(node.blocks())
        remark = check_node(node.kind(), list(node.inputs()), node.attributeNames(), opset, has_blocks=bool(inner))
        if remark:
            yield remark
        for body in inner:
            yield from _check(body, opset)


def _returned(results: Any) -> tuple[list[Any], bool]:
    """Return the values that a symbolic function returned, with lists unpacked, and whether it returned a sequence."""
    several = isinstance(results, (list, tuple))
    values: list[Any] = []
    for value in results if several else [results]:
        if isinstance(value, _C.Value) and value.node().kind() == "prim::ListConstruct":
            values.extend(value.node().inputs())
            several = True
        elif isinstance(value, _C.Value) or (several and value is None):
            values.append(value)
        else:
            raise TypeError(f"it returns {type(value).__name__} instead of a value of the graph")
    return values, several


def _run_passes(graph: Any, opset: int, target: Target) -> dict[str, Any]:
    """Run the passes that the old exporter runs on a graph of ONNX nodes; return the constants that they computed."""
    _C._jit_pass_onnx_scalar_type_analysis(graph, True, opset)
    _C._jit_pass_onnx_peephole(graph, opset, False)
    _C._jit_pass_dce_allow_deleting_nodes_with_side_effects(graph)
    initializers: dict[str, Any] = {}
    if target.constant_folding:
        initializers = _C._jit_pass_onnx_constant_fold(graph, initializers, opset)
        _C._jit_pass_dce_allow_deleting_nodes_with_side_effects(graph)
    # The old exporter also exports a graph whose shapes can't be inferred.
    with contextlib.suppress(RuntimeError, IndexError):
        _C._jit_pass_onnx_graph_shape_type_inference(graph, initializers, opset)
    return initializers


def _serialized(graph: Any, initializers: Mapping[str, Any], opset: int, target: Target) -> ir.Model:
    content, *_ = graph._export_onnx(
        initializers,
        opset,
        {},
        False,
        # This type keeps a node that a symbolic function added with g.at as it is.
        torch.onnx.OperatorExportTypes.ONNX_ATEN_FALLBACK,
        True,
        False,
        dict(target.custom_opsets),
        False,
        "",
        {},
    )
    return ir.serde.deserialize_model(onnx.load_model_from_string(content))


def _keep_foreign_nodes(model: ir.Model) -> None:
    """Move the nodes that ONNX does not have to a domain of their own, until the model is finished."""
    for node in model.graph.all_nodes():
        if node.domain == "" and is_kept(node.op_type, node.attributes):
            node.domain = KEPT_DOMAIN
            model.opset_imports[KEPT_DOMAIN] = 1


def _correct_strings(model: ir.Model) -> None:
    """Name the attribute of a string Constant "value_string": the old exporter names each such attribute "value"."""
    for node in model.graph.all_nodes():
        value = node.attributes.get("value") if node.op_type == "Constant" else None
        if value is not None and value.type == ir.AttributeType.STRING:
            node.attributes.pop("value")
            node.attributes["value_string"] = ir.AttrString("value_string", value.as_string())


def _add_types(model: ir.Model, graph: Any) -> None:
    """Add the element types and shapes of all values: the serializer writes only those of the inputs and outputs."""
    types = dict(_typed_values(graph))
    for node in model.graph.all_nodes():
        for value in node.outputs:
            found = types.get(value.name)
            if found is None or not found.type().isSubtypeOf(_C.TensorType.get()):
                continue
            # TorchScript has no number for the type of a string constant.
            unknown = found.type().scalarType() in (None, "UNKNOWN_SCALAR")
            if value.dtype is None and not unknown:
                value.dtype = ir.tensor_adapters.from_torch_dtype(_scalar_types().from_value(found).dtype())
            sizes = found.type().varyingSizes()
            if sizes is not None:
                value.shape = ir.Shape(sizes)
    for value in model.graph.outputs:
        found = types.get(value.name)
        if found is not None and found.type().isSubtypeOf(_C.TensorType.get()):
            sizes = found.type().varyingSizes()
            value.shape = None if sizes is None else ir.Shape(sizes)


def _typed_values(block: Any) -> Iterator[tuple[str, Any]]:
    for node in block.nodes():
        for value in node.outputs():
            yield value.debugName(), value
        for inner in node.blocks():
            yield from _typed_values(inner)
