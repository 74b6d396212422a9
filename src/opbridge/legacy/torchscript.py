"""The boundary around TorchScript's graph: the only file that reads internals of torch's old exporter.

A symbolic function runs on a real ``torch._C.Graph`` inside the old exporter's own graph context, so it finds what it
always found, and the small graph is finished by the old exporter's own passes and serializer.

``tests/test_legacy_context.py`` names every internal used here:

* ``torch._C.Graph``, ``TensorType``, ``NoneType``, ``DeviceObjType``: the graph, and the types of its values.
* ``torch.onnx._internal.torchscript_exporter.jit_utils.GraphContext``: the ``g`` of a symbolic function.
* ``..._globals.GLOBALS``: the opset and the settings that ``symbolic_helper`` and ``symbolic_opset9`` to 20 read.
* ``..._type_utils.JitScalarType``: the numbers by which TorchScript knows element types.
* ``...utils.register_custom_op_symbolic``, ``unregister_custom_op_symbolic``; ``...registration.registry``, its groups'
  ``_functions`` and their ``_base`` and ``_overrides``: the symbolic functions there are, and which are torch's own.
* the passes of ``_PASSES``: casts of constants, peephole, dead code, folding of constants, shapes.
* ``Graph._export_onnx``: serializes the graph.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch
from torch import _C

from opbridge.legacy.constants import SCALAR_TYPES, is_numbers, number
from opbridge.legacy.fragment import Fragment, Slot, TensorInput, restore_inputs
from opbridge.legacy.target import Target
from opbridge.legacy.validity import check_node

__all__ = ["available", "build", "class_named", "own_function", "register", "registered", "unregister"]

_PASSES = (
    "_jit_pass_onnx_scalar_type_analysis",
    "_jit_pass_onnx_peephole",
    "_jit_pass_dce_allow_deleting_nodes_with_side_effects",
    "_jit_pass_onnx_constant_fold",
    "_jit_pass_onnx_graph_shape_type_inference",
)


def available() -> bool:
    """Whether this torch still has the graph and the passes."""
    try:
        from torch.onnx._internal.torchscript_exporter import _globals, _type_utils, jit_utils  # noqa: F401
    except ImportError:
        return False
    return hasattr(_C, "Graph") and all(hasattr(_C, name) for name in _PASSES)


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
    """Run a symbolic function on TorchScript's graph, and convert what it builds.

    Args:
        symbolic: Called with the graph context, then ``args``.
        args: A :class:`Slot`, also inside lists, stands for each ONNX value.
        kwargs: Likewise.
        inputs: What is known of the values that the slots stand for.
        opset: The opset the symbolic is to write for.
        target: The settings of the export.
        registered: Make the other arguments constants of the graph, as the old exporter gives them to a registered
            symbolic function.

    Raises:
        Exception: Whatever the symbolic raises.
    """
    graph = _C.Graph()
    values = _add_inputs(graph, inputs)
    with settings(opset, target):
        context = _context(graph, opset)
        known = [_known(context, value, given) for value, given in zip(values, inputs, strict=True)]
        convert = _as_graph_value if registered else _as_given
        results = symbolic(
            context,
            *(convert(context, item, known) for item in args),
            **{name: convert(context, item, known) for name, item in kwargs.items()},
        )
        _check(graph, opset)
        returned, several = _returned(results)
        for value in returned:
            if value is not None:
                graph.registerOutput(value)
        # A pass erases unused inputs, and with them the objects that stand for them.
        names = [value.debugName() for value in values]
        copies = {made.debugName(): index for index, made in enumerate(known) if made is not values[index]}
        initializers = _run_passes(graph, opset, target)
        model = _serialized(graph, initializers, opset, target)
    _mend_strings(model)
    _note_types(model, graph)
    restore_inputs(model, names, copies)
    for function in context.functions:
        model.functions[function.identifier()] = function
    positions = iter(range(len(returned)))
    return Fragment(model, tuple(None if value is None else next(positions) for value in returned), several)


def class_named(name: str) -> type | None:
    """TorchScript's class of values, nodes, blocks or types of this name; None where torch has none."""
    return getattr(_C, name, None)


def register(name: str, function: Callable[..., Any], opset: int) -> None:
    """Put a symbolic function into torch's registry, which checks the name.

    Raises:
        Exception: torch refuses the name.
    """
    from torch.onnx._internal.torchscript_exporter import utils

    utils.register_custom_op_symbolic(name, function, opset)


def unregister(name: str, opset: int) -> None:
    """Take a registered symbolic function out of torch's registry."""
    from torch.onnx._internal.torchscript_exporter import utils

    utils.unregister_custom_op_symbolic(name, opset)


def registered() -> dict[str, dict[int, Callable[..., Any]]]:
    """The symbolic functions that are not torch's own, by operator and opset."""
    from torch.onnx._internal.torchscript_exporter.registration import registry

    found: dict[str, dict[int, Callable[..., Any]]] = {}
    for name in sorted(registry.all_functions()):
        # Under an empty namespace torch notes the symbolic of each autograd.Function that it exported itself.
        if name.startswith("::"):
            continue
        functions: Any = getattr(registry.get_function_group(name), "_functions", None)
        foreign = {
            opset: function
            for opset, function in functions._base.items()
            if not str(getattr(function, "__module__", None)).startswith("torch.")
        }
        foreign.update(functions._overrides)
        if foreign:
            found[name] = foreign
    return found


def own_function(name: str, opset: int) -> Callable[..., Any] | None:
    """The newest symbolic function not above an opset, torch's own included; None if there is none."""
    _import_symbolics()
    from torch.onnx._internal.torchscript_exporter.registration import registry

    group = registry.get_function_group(name)
    return group.get(opset) if group is not None else None


def _import_symbolics() -> None:
    """Importing the modules of torch's symbolic functions registers them."""
    from torch.onnx._internal.torchscript_exporter import utils

    utils._trigger_symbolic_function_registration()


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
def settings(opset: int, target: Target) -> Iterator[None]:
    """The old exporter's globals as they are during an export, put back afterwards."""
    from torch.onnx._internal.torchscript_exporter._globals import GLOBALS

    before = dict(vars(GLOBALS))
    GLOBALS.export_onnx_opset_version = opset
    GLOBALS.in_onnx_export = True
    GLOBALS.training_mode = getattr(torch.onnx.TrainingMode, target.training)
    GLOBALS.operator_export_type = getattr(torch.onnx.OperatorExportTypes, target.operator_export_type)
    GLOBALS.export_training = target.training == "TRAINING"
    # Old code, mmcv's copies of symbolic_helper for one, reads a constant as node["value"].
    _C.Node.__getitem__ = _attribute_of  # type: ignore[attr-defined,method-assign]
    try:
        yield
    finally:
        vars(GLOBALS).update(before)
        del _C.Node.__getitem__  # type: ignore[attr-defined]


def _attribute_of(node: Any, name: str) -> Any:
    return getattr(node, node.kindOf(name))(name)


def _context(graph: Any, opset: int) -> Any:
    """The old exporter's graph context, whose ``onnxscript_op`` keeps the function instead of registering it."""
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
            # The old exporter makes of a number a Constant that is no tensor, which its own passes then can't read.
            if opname in ("Constant", "onnx::Constant") and not raw_args:
                for key, dtype in (("value_f", torch.float32), ("value_i", torch.int64)):
                    if key in kwargs:
                        kwargs = {"value_t": torch.tensor(kwargs[key], dtype=dtype)}
            return super().op(opname, *raw_args, outputs=outputs, **kwargs)

        def onnxscript_op(self, onnx_fn: Any, *raw_args: Any, outputs: int = 1, **kwargs: Any) -> Any:
            self.functions.append(ir.serde.deserialize_function(onnx_fn.to_function_proto()))
            return self.op(f"{onnx_fn.opset.domain}::{onnx_fn.name}", *raw_args, outputs=outputs, **kwargs)

    return Context


def _known(context: Any, value: Any, given: TensorInput) -> Any:
    """The value as the symbolic gets it: a constant where the old exporter would have had one."""
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
    """An argument in the form in which it leaves the old exporter's passes before symbolic functions are called."""
    if isinstance(item, Slot):
        return values[item.index]
    if item is None or isinstance(item, torch.device):
        return _prim_constant(context, item)
    if isinstance(item, str):
        return context.op("Constant", value_s=item)
    if isinstance(item, torch.dtype):
        item = SCALAR_TYPES.index(item)
    if isinstance(item, (list, tuple)) and not is_numbers(item):
        parts = [_as_graph_value(context, part, values) for part in item]
        made = context.op("prim::ListConstruct", *parts)
        strings = any(isinstance(part, str) for part in item)
        made.setType(_C.ListType.ofStrings() if strings else _C.ListType.ofTensors())
        return made
    return context.op("Constant", value_t=item if isinstance(item, torch.Tensor) else number(item))


def _prim_constant(context: Any, item: Any) -> Any:
    if item is not None:
        return context.graph.insertConstant(item)
    node = context.graph.insertNode(context.graph.create("prim::Constant"))
    node.output().setType(_C.NoneType.get())
    return node.output()


def _check(block: Any, opset: int) -> None:
    for node in block.nodes():
        inner = list(node.blocks())
        check_node(node.kind(), list(node.inputs()), node.attributeNames(), opset, has_blocks=bool(inner))
        for body in inner:
            _check(body, opset)


def _returned(results: Any) -> tuple[list[Any], bool]:
    """The values that a symbolic returned, lists of the graph unpacked, and whether they are several."""
    several = isinstance(results, (list, tuple))
    values: list[Any] = []
    for value in results if several else [results]:
        if isinstance(value, _C.Value) and value.node().kind() == "prim::ListConstruct":
            values.extend(value.node().inputs())
            several = True
        elif isinstance(value, _C.Value) or (several and value is None):
            values.append(value)
        else:
            raise TypeError(f"it returns {type(value).__name__} where a value of the graph is expected")
    return values, several


def _run_passes(graph: Any, opset: int, target: Target) -> dict[str, Any]:
    """What the old exporter does with a graph of ONNX nodes. Returns the constants that it computed."""
    _C._jit_pass_onnx_scalar_type_analysis(graph, True, opset)
    _C._jit_pass_onnx_peephole(graph, opset, False)
    _C._jit_pass_dce_allow_deleting_nodes_with_side_effects(graph)
    initializers: dict[str, Any] = {}
    if target.constant_folding:
        initializers = _C._jit_pass_onnx_constant_fold(graph, initializers, opset)
        _C._jit_pass_dce_allow_deleting_nodes_with_side_effects(graph)
    # The old exporter exports a graph whose shapes can't be inferred as well.
    with contextlib.suppress(RuntimeError):
        _C._jit_pass_onnx_graph_shape_type_inference(graph, initializers, opset)
    return initializers


def _serialized(graph: Any, initializers: Mapping[str, Any], opset: int, target: Target) -> ir.Model:
    content, *_ = graph._export_onnx(
        initializers,
        opset,
        {},
        False,
        # A node that a symbolic made with g.at stays as it is.
        torch.onnx.OperatorExportTypes.ONNX_ATEN_FALLBACK,
        True,
        False,
        dict(target.custom_opsets),
        False,
        "",
        {},
    )
    import onnx

    return ir.serde.deserialize_model(onnx.load_model_from_string(content))


def _mend_strings(model: ir.Model) -> None:
    """Let a Constant that is a string say so: the old exporter calls every attribute of it "value"."""
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        value = node.attributes.get("value") if node.op_type == "Constant" else None
        if value is not None and value.type == ir.AttributeType.STRING:
            node.attributes.pop("value")
            node.attributes["value_string"] = ir.AttrString("value_string", value.as_string())


def _note_types(model: ir.Model, graph: Any) -> None:
    """The element types and sizes of all values: the serializer writes only those of the inputs and outputs."""
    from torch.onnx._internal.torchscript_exporter._type_utils import JitScalarType

    types = dict(_typed_values(graph))
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        for value in node.outputs:
            found = types.get(value.name)
            if found is None or not found.type().isSubtypeOf(_C.TensorType.get()):
                continue
            # The constant of a string has a type that TorchScript has no number for.
            unknown = found.type().scalarType() in (None, "UNKNOWN_SCALAR")
            if value.dtype is None and not unknown:
                value.dtype = ir.tensor_adapters.from_torch_dtype(JitScalarType.from_value(found).dtype())
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
