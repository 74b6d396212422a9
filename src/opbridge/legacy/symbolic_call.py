"""Calling an old symbolic function inside a translation: what it builds becomes part of the model."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import onnx
import onnx_ir as ir
import torch

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.errors import OpbridgeError, TranslationError, described_error, first_line
from opbridge.legacy import torchscript
from opbridge.legacy.folding import fold_results, state_constants
from opbridge.legacy.fragment import PLACEHOLDER_DOMAIN, Fragment, Slot, TensorInput, splice
from opbridge.legacy.target import current_target
from opbridge.legacy.validity import InvalidNodeError
from opbridge.onnx_model.opsets import convert_opset
from opbridge.torch_graph.sources import source_of_error, source_of_function

__all__ = ["emit", "splicing", "symbolic_opset"]


@dataclasses.dataclass
class _Translation:
    """The translation that is under way.

    Attributes:
        opset: The opset of its plan.
        asked_opset: The one that symbolic functions are to write for.
        constants: The contents of the graph's inputs that are constants of the code, by name.
        fragments: What symbolic functions have built so far.
    """

    opset: int
    asked_opset: int
    constants: Mapping[str, torch.Tensor]
    fragments: dict[int, Fragment] = dataclasses.field(default_factory=dict)


_current: contextvars.ContextVar[_Translation | None] = contextvars.ContextVar("opbridge_symbolic_calls", default=None)


@contextlib.contextmanager
def splicing(
    program: torch.export.ExportedProgram, opset: int, asked_opset: int | None = None
) -> Iterator[Callable[[ir.Model], None]]:
    """Around the translation of a program whose operators may have symbolic functions.

    Args:
        program: Gives the constants that its code holds.
        opset: The opset it is translated to.
        asked_opset: The opset that the user asks for, which may be older: symbolic functions write for it, and what
            they build is taken up to ``opset``.

    Yields:
        What puts into the translated model all that the symbolic functions have built.
    """
    translation = _Translation(opset, asked_opset or opset, _constants_of(program))
    token = _current.set(translation)
    try:
        yield lambda model: splice(model, translation.fragments)
    finally:
        _current.reset(token)


def _constants_of(program: torch.export.ExportedProgram) -> dict[str, torch.Tensor]:
    lifted = program.graph_signature.inputs_to_lifted_tensor_constants
    found = {name: program.constants.get(target) for name, target in lifted.items()}
    return {name: value for name, value in found.items() if isinstance(value, torch.Tensor)}


def symbolic_opset() -> int:
    """The opset that symbolic functions are to write for: the one asked for, else that of the plan.

    Raises:
        TranslationError: No translation is under way.
    """
    return _translation("an operator").asked_opset


def _translation(name: str) -> _Translation:
    translation = _current.get()
    if translation is None:
        raise TranslationError(
            f"The symbolic function of {name} is called outside of an export.",
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
) -> Any:
    """Let a symbolic function build its nodes in the model that torch.onnx.export is translating.

    Args:
        symbolic: ``symbolic(g, *args, **kwargs)``.
        args: ONNX values for tensors, also inside lists; Python values for the rest.
        kwargs: Likewise.
        name: What it is the symbolic function of, for messages: "mylib::op", or the name of an autograd.Function.
        results: How many values the operator returns; None takes what the symbolic returns.
        registered: Make arguments that are no ONNX values constants of the graph, as the old exporter does for a
            registered symbolic function. Without it they are passed untouched, as for an autograd.Function.

    Returns:
        An ONNX value, or a tuple if the symbolic returns several or a list.

    Raises:
        TranslationError: The symbolic raises, returns another number of values, or builds an invalid node.
    """
    translation = _translation(name)
    values: list[Any] = []
    opset = translation.asked_opset
    given = [_with_slots(item, values) for item in args]
    named = {key: _with_slots(item, values) for key, item in (kwargs or {}).items()}
    described = [_describe(value, translation.constants) for value in values]
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
    number = len(translation.fragments)
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
    """Refuse a node of the standard domain that the standard does not have at this opset."""
    if any(node.domain == "" for node in fragment.model.graph.all_nodes()):
        try:
            onnx.checker.check_model(_typed(ir.serde.serialize_model(fragment.model)))
        except onnx.checker.ValidationError as error:
            raise TranslationError(
                f"The symbolic function of {name}{_place(symbolic)} makes a node that is not valid at opset {opset}: "
                f"{first_line(error)}",
                fix=f"let it make what opset {opset} has, or ask for the opset that it is written for (opset=11).",
                details=str(error),
            ) from error


def _typed(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Types for the inputs and outputs that have none: the checker wants one on each, and looks no closer."""
    for value in (*proto.graph.input, *proto.graph.output):
        if not value.type.WhichOneof("value"):
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()
    return proto


def _raised(symbolic: Callable[..., Any], name: str, fragment: Fragment, opset: int, wanted: int) -> ir.Model:
    """The model of a fragment that was written for ``opset``, at the opset of the whole model."""
    model = fragment.model
    standard = any(node.domain == "" for node in model.graph.all_nodes())
    if opset == wanted or not (standard or model.functions):
        return model
    converted = convert_opset(model, wanted)
    if converted.unexpressed:
        node = converted.unexpressed[0]
        raise TranslationError(
            f"The symbolic function of {name}{_place(symbolic)} makes a node {node.operator} at opset {opset} that "
            f"opset {wanted} can't express: {node.reason}",
            fix=f"register a symbolic function that is written for opset {wanted}.",
        )
    return converted.model


def _with_slots(item: Any, values: list[Any]) -> Any:
    if isinstance(item, ir.Value):
        position = next((index for index, value in enumerate(values) if value is item), len(values))
        if position == len(values):
            values.append(item)
        return Slot(position)
    if type(item) in (list, tuple):
        return type(item)(_with_slots(part, values) for part in item)
    return {key: _with_slots(part, values) for key, part in item.items()} if type(item) is dict else item


def _describe(value: ir.Value, constants: Mapping[str, torch.Tensor]) -> TensorInput:
    shape = None if value.shape is None else tuple(size if isinstance(size, int) else None for size in value.shape)
    return TensorInput(value.dtype, shape, _constant(value, constants))


def _constant(value: ir.Value, constants: Mapping[str, torch.Tensor]) -> torch.Tensor | None:
    """The contents of a value that the code states, through nodes that only copy it; None for any other."""
    while (node := value.producer()) is not None and node.op_type == "Identity" and node.inputs[0] is not None:
        value = node.inputs[0]
    if node is None:
        return constants.get(str(value.name))
    tensor = ir.convenience.get_const_tensor(value)
    return None if tensor is None else torch.from_numpy(tensor.numpy().copy())


def _place(symbolic: Callable[..., Any]) -> str:
    source = source_of_function(inspect.unwrap(symbolic))
    return f" at {source}" if source else ""


def _failure(symbolic: Callable[..., Any], name: str, error: Exception) -> TranslationError:
    line = source_of_error(error)
    return TranslationError(
        f"The symbolic function of {name}{f' at {line}' if line else _place(symbolic)} fails: {described_error(error)}",
        fix="mend the function at that place, or give the operator a mapping with opbridge.translation.",
        details=str(error),
    )


def _wrong_count(symbolic: Callable[..., Any], name: str, count: int, results: int) -> TranslationError:
    values = f"{count} values" if count != 1 else "1 value"
    return TranslationError(
        f"The symbolic function of {name}{_place(symbolic)} returns {values}, and the operator has {results}.",
        fix=f"let it return {results}; a node with several outputs is made with g.op(..., outputs={results}).",
    )
