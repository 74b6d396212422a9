"""Calls an old symbolic function inside a translation; the nodes that it adds become part of the model."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import torch

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.engines.versions import SYMBOLIC
from opbridge.errors import OpbridgeError, TranslationError, described_error, first_line
from opbridge.legacy import switch, torchscript
from opbridge.legacy.folding import contents_of, fold_results, fold_state, state_constants
from opbridge.legacy.fragment import PLACEHOLDER_DOMAIN, Fragment, Slot, TensorInput, splice
from opbridge.legacy.target import current_target
from opbridge.legacy.validity import InvalidNodeError
from opbridge.onnx_model.opsets import convert_opset
from opbridge.torch_graph.sources import source_of_error, source_of_function

__all__ = ["counting", "emit", "splicing", "symbolic_opset"]


@dataclasses.dataclass
class _Translation:
    """The state of the current translation.

    Attributes:
        opset: The opset of the plan.
        requested_opset: The opset of the nodes that symbolic functions add.
        constants: The contents of the values that are constants in the user's code, by name.
        fragments: The fragments that symbolic functions have built so far.
        uses: The declarations whose calls built them, by the numbers of the fragments.
    """

    opset: int
    requested_opset: int
    constants: Mapping[str, np.ndarray]
    fragments: dict[int, Fragment] = dataclasses.field(default_factory=dict)
    uses: dict[int, switch.Use] = dataclasses.field(default_factory=dict)


_uses: contextvars.ContextVar[Counter[switch.Use]] = contextvars.ContextVar("opbridge_symbolic_uses")
_current: contextvars.ContextVar[_Translation | None] = contextvars.ContextVar("opbridge_symbolic_calls", default=None)


@contextlib.contextmanager
def splicing(
    program: torch.export.ExportedProgram, opset: int, requested_opset: int | None = None
) -> Iterator[Callable[[ir.Model], None]]:
    """Prepare the translation of a program whose operators may have symbolic functions.

    Args:
        program: The captured program, which holds the constants of the user's code.
        opset: The opset of the translation.
        requested_opset: The opset that the user requested, which may be older. Symbolic functions add nodes of this
            opset, which are then converted to ``opset``.

    Yields:
        A function that inserts all fragments that the symbolic functions have built into the translated model.
    """
    translation = _Translation(opset, requested_opset or opset, _constants_of(program))
    token = _current.set(translation)
    try:
        yield lambda model: _finish(model, translation)
    finally:
        _current.reset(token)


def _finish(model: ir.Model, translation: _Translation) -> None:
    """Insert the fragments, and count those that torch's optimizer has left in the model."""
    left = splice(model, translation.fragments)
    if left and current_target().constant_folding:
        fold_state(model)
    _uses.get().update(translation.uses[number] for number in left if number in translation.uses)


@contextlib.contextmanager
def counting() -> Iterator[Callable[[ir.Model], None]]:
    """Count the calls of symbolic functions in the block, which translates one model and the bodies of its functions.

    Yields:
        A function that is called with the finished model.
    """
    uses: Counter[switch.Use] = Counter()
    token = _uses.set(uses)
    try:
        yield lambda model: switch.keep_uses(model, uses)
    finally:
        _uses.reset(token)


def _constants_of(program: torch.export.ExportedProgram) -> dict[str, np.ndarray]:
    """Return the contents of tensors that the user's code made, and of ``.data`` of parameters and buffers, by name.

    The old exporter recorded the former and the latter as constants, and parameters and buffers as inputs.
    """
    signature = program.graph_signature
    lifted = signature.inputs_to_lifted_tensor_constants
    state = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    found = {name: program.constants.get(target) for name, target in lifted.items()}
    for node in program.graph.nodes:
        name = state.get(str(node.args[0])) if node.target in _DATA else None
        if name is not None and name not in signature.buffers_to_mutate.values():
            found[node.name] = program.state_dict.get(name, program.constants.get(name))
    return {
        name: ir.tensor_adapters.TorchTensor(value).numpy()
        for name, value in found.items()
        if isinstance(value, torch.Tensor)
    }


_DATA = (torch.ops.aten.alias.default, torch.ops.aten.detach.default)
"""What ``.data`` and ``.detach()`` are in a captured graph."""


def symbolic_opset() -> int:
    """Return the opset of the nodes that symbolic functions add: the requested one, or that of the plan.

    Raises:
        TranslationError: There is no current translation.
    """
    return _translation("an operator").requested_opset


def _translation(name: str) -> _Translation:
    translation = _current.get()
    if translation is None:
        raise TranslationError(
            f"The symbolic function of {name} was called outside an export.",
            fix="export the model with opbridge.export, or with torch.onnx.export after opbridge.legacy.enable().",
        )
    return translation


def emit(
    symbolic: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    name: str,
    results: int | None = None,
    registered: bool = False,
    noted: bool = True,
) -> Any:
    """Run a symbolic function in the current translation.

    Args:
        symbolic: The symbolic function, called as ``symbolic(g, *args, **kwargs)``.
        args: The positional arguments: ONNX values for tensors, also inside lists, and Python values for the rest.
        kwargs: The keyword arguments, in the same form as ``args``.
        name: The name of the operator ("mylib::op") or of the autograd.Function, for messages.
        results: The number of values that the operator returns; None accepts any number.
        registered: Whether arguments that are not ONNX values become constants of the graph, as the old exporter passes
            them to a registered symbolic function. If False, they are passed unchanged, as for an autograd.Function.
        noted: Whether the call is one that :func:`opbridge.legacy.bridged` counts.

    Returns:
        An ONNX value, or a tuple if the symbolic function returns a sequence.

    Raises:
        TranslationError: The symbolic function raises, returns another number of values, or adds an invalid node.
    """
    translation = _translation(name)
    values: list[Any] = []
    opset = translation.requested_opset
    given = [_with_slots(item, values) for item in args]
    named = {key: _with_slots(item, values) for key, item in (kwargs or {}).items()}
    described = [_describe(value, translation) for value in values]
    try:
        fragment = torchscript.build(
            symbolic, given, named, inputs=described, opset=opset, target=current_target(), registered=registered
        )
    except OpbridgeError:
        raise
    except InvalidNodeError as error:
        place = f"The symbolic function of {name}{_place(symbolic)}"
        raise TranslationError(f"{place} {error.reason}", fix=error.fix) from error
    except Exception as error:
        raise _failure(symbolic, name, error) from error
    count = len(fragment.results)
    if results is not None and count != results:
        raise _wrong_count(symbolic, name, count, results)
    state_constants(fragment.model)
    fold_results(fragment.model)
    _check(symbolic, name, fragment, opset)
    kind: switch.Kind = "registered symbolic" if registered else "autograd.Function"
    use = (kind, name, _source(symbolic))
    if fragment.remarks:
        switch.note(*use, *fragment.remarks, count=0)
    number = len(translation.fragments)
    if noted:
        translation.uses[number] = use
    translation.fragments[number] = dataclasses.replace(
        fragment, model=_raised(symbolic, name, fragment, opset, translation.opset), name=name
    )
    outputs = custom_node(f"{PLACEHOLDER_DOMAIN}::Symbolic", *values, num_outputs=count, fragment=number)
    outputs = outputs if count > 1 else (outputs,)
    for position, output in enumerate(outputs):
        built = fragment.value(position)
        output.dtype = built.dtype if built is not None else None
    return tuple(outputs) if fragment.several else outputs[0]


def _check(symbolic: Callable[..., Any], name: str, fragment: Fragment, opset: int) -> None:
    """Raise TranslationError if a node of the default domain is not valid at this opset."""
    if any(node.domain == "" for node in fragment.model.graph.all_nodes()):
        try:
            onnx.checker.check_model(_typed(ir.serde.serialize_model(fragment.model)))
        except onnx.checker.ValidationError as error:
            raise TranslationError(
                f"The symbolic function of {name}{_place(symbolic)} adds a node that is not valid at opset {opset}: "
                f"{first_line(error)}",
                fix=f"change it to add nodes of opset {opset}.",
                details=str(error),
            ) from error


def _typed(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Give a type to each input and output that has none: the checker requires one, but does not compare it."""
    for value in (*proto.graph.input, *proto.graph.output):
        if not value.type.WhichOneof("value"):
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()
    return proto


def _raised(symbolic: Callable[..., Any], name: str, fragment: Fragment, opset: int, wanted: int) -> ir.Model:
    """Return the model of a fragment, which is at ``opset``, converted to the opset of the whole model."""
    model = fragment.model
    standard = any(node.domain == "" for node in model.graph.all_nodes())
    if opset == wanted or not (standard or model.functions):
        return model
    as_written = [_signature(node) for node in model.graph.all_nodes()]
    for number, node in enumerate(model.graph.all_nodes()):
        node.metadata_props[SYMBOLIC] = str(number)
    converted = convert_opset(model, wanted)
    if converted.unexpressed:
        node = converted.unexpressed[0]
        raise TranslationError(
            f"The symbolic function of {name}{_place(symbolic)} adds a node {node.operator} of opset {opset} that "
            f"can't be expressed at opset {wanted}: {node.reason}",
            fix=f"register a symbolic function for opset {wanted}.",
        )
    for node in converted.model.graph.all_nodes():
        number = node.metadata_props.get(SYMBOLIC)
        unchanged = number is not None and _signature(node) == as_written[int(number)]
        node.metadata_props[SYMBOLIC] = str(opset) if unchanged else ""
    return converted.model


def _signature(node: ir.Node) -> tuple[Any, ...]:
    """What is compared to find out whether the conversion has changed a node; values keep their names in it."""
    inputs = tuple(None if value is None else value.name for value in node.inputs)
    attributes = tuple((name, repr(item.value)) for name, item in sorted(node.attributes.items()))
    return node.op_identifier(), inputs, len(node.outputs), attributes


def _with_slots(item: Any, values: list[Any]) -> Any:
    if isinstance(item, ir.Value):
        position = next((index for index, value in enumerate(values) if value is item), len(values))
        if position == len(values):
            values.append(item)
        return Slot(position)
    if type(item) in (list, tuple):
        return type(item)(_with_slots(part, values) for part in item)
    return {key: _with_slots(part, values) for key, part in item.items()} if type(item) is dict else item


def _describe(value: ir.Value, translation: _Translation) -> TensorInput:
    shape = None if value.shape is None else tuple(size if isinstance(size, int) else None for size in value.shape)
    contents = contents_of(value, translation.opset, translation.constants)
    return TensorInput(value.dtype, shape, None if contents is None else _as_torch(contents))


def _as_torch(array: np.ndarray) -> torch.Tensor:
    if array.dtype.isbuiltin == 1:
        return torch.from_numpy(array.copy())
    dtype = ir.tensor_adapters.to_torch_dtype(ir.DataType.from_numpy(array.dtype))
    return torch.from_numpy(array.view(f"u{array.itemsize}").copy()).view(dtype)


def _place(symbolic: Callable[..., Any]) -> str:
    source = _source(symbolic)
    return f" at {source}" if source else ""


def _source(symbolic: Callable[..., Any]) -> str:
    return str(source_of_function(inspect.unwrap(symbolic)) or "")


def _failure(symbolic: Callable[..., Any], name: str, error: Exception) -> TranslationError:
    line = source_of_error(error)
    return TranslationError(
        f"The symbolic function of {name}{f' at {line}' if line else _place(symbolic)} fails: {described_error(error)}",
        fix="correct the function at that line, or give the operator a mapping with opbridge.translation.",
        details=str(error),
    )


def _wrong_count(symbolic: Callable[..., Any], name: str, count: int, results: int) -> TranslationError:
    values = f"{count} value{'' if count == 1 else 's'}"
    return TranslationError(
        f"The symbolic function of {name}{_place(symbolic)} returns {values}, but the operator returns {results}.",
        fix=f"return {results} from it; g.op(..., outputs={results}) adds a node with that many outputs.",
    )
