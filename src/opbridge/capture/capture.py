"""Stage 1, link 1: ``capture`` a model as a graph with ``torch.export``."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.export.graph_signature import SymBoolArgument, SymFloatArgument

from opbridge.capture.assuming import Assumptions
from opbridge.capture.assumption import Assume, Assumption
from opbridge.capture.assumption_output import ASSUMPTIONS_HOLD, WithCheck, compute_check, without_check
from opbridge.capture.caught_errors import refuse_caught_errors
from opbridge.capture.changes import Changes, with_changes
from opbridge.capture.constants import Constants
from opbridge.capture.control_flow.conversion import refuse_returned_list
from opbridge.capture.declared_sizes import check_declared_sizes
from opbridge.capture.export import Example, declared_by, export_program
from opbridge.capture.hooks import AROUND
from opbridge.capture.names import input_names as names_of_inputs
from opbridge.capture.names import output_names as names_of_outputs
from opbridge.capture.python_draws import generator_states, refuse_constant_draws
from opbridge.capture.quantized import dequantized_modules
from opbridge.capture.rewriting import Used, rewriting
from opbridge.capture.torchscript import as_submodule, scripted_as_python
from opbridge.catalog.declare.spec import OpSpec
from opbridge.errors import InputError, first_line
from opbridge.findings import Finding
from opbridge.records import StoredRecord
from opbridge.torch_graph.attribute_state import changed_attributes_as_buffers
from opbridge.torch_graph.branch_results import copy_shared_results
from opbridge.torch_graph.dense import dense_weights, refuse_nested
from opbridge.torch_graph.dimensions import arguments_by_name, bounded_inputs, dimension_names, dynamic_axes
from opbridge.torch_graph.freeze import freeze_program, frozen, frozen_copy, without_gradients
from opbridge.torch_graph.gradients import misses_gradients
from opbridge.torch_graph.lazy_modules import initialized
from opbridge.torch_graph.library_checks import statement_that_only_raises
from opbridge.torch_graph.mutated_parts import select_mutated_parts
from opbridge.torch_graph.variadic import by_input, explicit_parameters

__all__ = ["Captured", "StateBuffer", "as_module", "capture"]


@dataclasses.dataclass(frozen=True)
class StateBuffer(StoredRecord):
    """A buffer that ``forward`` changes and that is an input and an output of the ONNX model.

    Attributes:
        buffer: The buffer's name in the module: ``"cell.h"``.
        input: The ONNX name of the input that takes its value.
        output: The ONNX name of the output that gives its value for the next call.
    """

    buffer: str
    input: str
    output: str


@dataclasses.dataclass(frozen=True)
class Captured:
    """A captured model.

    Attributes:
        program: The captured graph, not decomposed; its parameters do not require gradients.
        module: The user's eager model; None if a captured program was given.
        args: The positional example inputs.
        kwargs: The example inputs by keyword.
        input_names: The ONNX names of the flattened inputs that are tensors or dynamic ints, in order.
        output_names: The ONNX names of the flattened tensor outputs, in order.
        dimension_names: The user's names of dynamic dimensions, by torch's symbol ("s77" to "batch").
        bounded_inputs: The inputs with a dimension for which the user declared a maximum size.
        rewrites: The rewrites that were used, each with the user's lines that called the replaced function.
        was_training: Whether the model was in training mode. It is captured in evaluation mode.
        declared: The mappings of operators that this capture created for autograd.Functions, if that is enabled.
        dynamic_axes: The dynamic axes of each input, by its ONNX name. A later stage that specializes a size does so in
            the program too, which then does not show what was captured.
        state: The buffers that are inputs and outputs; ``module`` is then a ``capture.stateful.Stateful``.
        unchecked: The checks of values that are left out of the program: their line, and the statement.
        untried: The lines of conditions on sizes that were not checked within the time limit.
        converted: The statements whose control flow was converted: the ONNX operator, and the line.
        assumptions: What the program assumes, because it holds for the example inputs.
        obstacles: Why these assumptions are necessary.
    """

    program: torch.export.ExportedProgram
    module: torch.nn.Module | None
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    dimension_names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    bounded_inputs: frozenset[str] = frozenset()
    rewrites: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    was_training: bool = False
    declared: tuple[OpSpec, ...] = ()
    dynamic_axes: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    state: tuple[StateBuffer, ...] = ()
    unchecked: tuple[tuple[str, str], ...] = ()
    untried: tuple[str, ...] = ()
    converted: tuple[tuple[str, str], ...] = ()
    assumptions: tuple[Assumption, ...] = ()
    obstacles: tuple[Finding, ...] = ()


def capture(
    model: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    rewrites: Sequence[OpSpec] = (),
    check_sizes: bool = True,
    assume: Assume = False,
) -> Captured:
    """Capture a model as a graph.

    Args:
        model: An ``nn.Module``, a function of tensors, an ``ExportedProgram`` or a TorchScript module.
        args: Example inputs; a single tensor is the only input.
        kwargs: Example inputs by keyword.
        dynamic_shapes: The dynamic dimensions, in the form of ``torch.export.export``; a dimension may also be named by
            a string. Inputs that ``*args`` takes are named ``args_0``, ``args_1``, ..., and those that ``**kwargs``
            takes have their own names.
        input_names: The ONNX names of the inputs; by default the parameters' names.
        output_names: The ONNX names of the outputs; by default the keys of a dict output, otherwise "output".
        rewrites: The replacements of Python functions to use during the capture.
        check_sizes: Whether a declared size that the model accepts and the program does not is an error.
        assume: Whether a model that can't be captured otherwise is captured for the example inputs, with the branches
            that they take and the sizes that they have. ``Captured.assumptions`` lists them. With "check", the program
            has a further output, :data:`~opbridge.capture.assumption_output.ASSUMPTIONS_HOLD`.

    Raises:
        CaptureError: torch.export can't capture the model; the message names the line in the user's source.
        InputError: The arguments do not fit the model, or the names do not fit its inputs and outputs.
    """
    if isinstance(model, torch.export.ExportedProgram):
        return _from_program(model, input_names, output_names)
    module = as_module(model)
    positional = (args,) if isinstance(args, torch.Tensor) else tuple(args)
    refuse_nested((positional, kwargs))
    positional, keywords = without_gradients((positional, dict(kwargs or {})))
    dynamic_shapes = by_input(dynamic_shapes, module, positional, keywords)
    example = positional, keywords
    module = initialized(module, *example)
    constants = Constants(module)
    assumptions = Assumptions(module, example, dynamic_shapes)

    def attempt(changes: Changes) -> Captured:
        with changes.made(module, constants) as notes, assumptions.made() as shapes:
            given = changes.example or example
            captured = _captured(module, given, shapes, input_names, output_names, rewrites, check_sizes)
        refuse_returned_list(captured.program)
        if changes.known and not constants.are_constant_in(captured.program):
            changes.known = None
            return attempt(changes)
        if not changes.gradients and misses_gradients(captured.program):
            changes.gradients = True
            return attempt(changes)
        return dataclasses.replace(
            captured,
            args=example[0],
            kwargs=example[1],
            unchecked=tuple(notes.checks),
            converted=tuple(notes.operators),
        )

    output_names = without_check(output_names)
    with scripted_as_python(module), changed_attributes_as_buffers(module, *example):
        captured, changes = with_changes(attempt, assumptions if assume else None)
    unchecked = {(str(line), text) for line in changes.checks if (text := statement_that_only_raises(line))}
    captured = dataclasses.replace(captured, unchecked=tuple(sorted({*captured.unchecked, *unchecked})))
    captured = dataclasses.replace(captured, assumptions=assumptions.listed(), obstacles=assumptions.obstacles())
    if assume != "check" or all(item.kind == "size" for item in captured.assumptions):
        return captured
    checked = capture(
        WithCheck(module),
        *example,
        dynamic_shapes=dynamic_shapes,
        input_names=input_names,
        rewrites=rewrites,
        check_sizes=check_sizes,
        assume=True,
    )
    compute_check(checked.program)
    return dataclasses.replace(checked, output_names=(*captured.output_names, ASSUMPTIONS_HOLD))


def _captured(
    module: torch.nn.Module,
    given: Example,
    dynamic_shapes: Any,
    input_names: Sequence[str] | None,
    output_names: Sequence[str] | None,
    rewrites: Sequence[OpSpec],
    check_sizes: bool,
) -> Captured:
    with _prepared(module, given, rewrites) as (used, was_training, observers):
        states = generator_states()
        program, example, guards = export_program(module, given, dynamic_shapes, check_sizes)
        has_drawn = generator_states() != states
        select_mutated_parts(program)
        freeze_program(program)
        copy_shared_results(program)
        arguments = arguments_by_name(module, *given)
        dimensions = declared_by(module, example, dynamic_shapes)
    declared = tuple(spec for observer in observers for spec in observer.finish(program))
    untried = check_declared_sizes(module, program, example, dimensions, guards) if guards and check_sizes else ()
    refuse_caught_errors(program)
    if has_drawn:
        refuse_constant_draws(module, given)
    names = names_of_inputs(program, input_names)
    return Captured(
        program=program,
        module=module,
        args=given[0],
        kwargs=given[1],
        input_names=names,
        output_names=names_of_outputs(program, output_names, names),
        dimension_names=dimension_names(program, dynamic_shapes, arguments),
        bounded_inputs=bounded_inputs(program, dynamic_shapes, arguments),
        rewrites=used.sources(),
        was_training=was_training,
        untried=untried,
        declared=declared,
        dynamic_axes=dynamic_axes(program, names),
    )


@contextlib.contextmanager
def _prepared(
    module: torch.nn.Module, given: Example, rewrites: Sequence[OpSpec]
) -> Iterator[tuple[Used, bool, list[Any]]]:
    """Make a module ready for torch.export inside the block.

    Yields:
        The rewrites that are used, whether the module was in training mode, and the observers of the hooks.
    """
    # The lock in rewriting is acquired first, because two threads must not freeze a model at the same time.
    with rewriting(rewrites) as used, frozen(module) as was_training, contextlib.ExitStack() as stack:
        observers = [stack.enter_context(around()) for around in AROUND]
        stack.enter_context(explicit_parameters(module, *given))
        stack.enter_context(dense_weights(module))
        stack.enter_context(dequantized_modules(module))
        yield used, was_training, observers


def _from_program(program: torch.export.ExportedProgram, inputs: Any, outputs: Any) -> Captured:
    returned = [spec.arg for spec in program.graph_signature.output_specs]
    if any(isinstance(value, SymFloatArgument | SymBoolArgument) for value in returned):
        raise InputError(
            "The exported program returns a float or a bool that depends on data; the outputs of a model are tensors.",
            fix="pass the module in place of the program, or export it again with the tensor in place of .item().",
        )
    program = frozen_copy(program)
    copy_shared_results(program)
    args, kwargs = program.example_inputs or ((), {})
    names = names_of_inputs(program, inputs)
    return Captured(
        program,
        None,
        tuple(args),
        dict(kwargs),
        names,
        names_of_outputs(program, outputs, names),
        dynamic_axes=dynamic_axes(program, names),
    )


class _Function(torch.nn.Module):
    """A plain function as a module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function
        self.forward = _named_forward(function)


def _named_forward(function: Any) -> Any:
    """The function under the name ``forward``, because torch records the source lines of frames with that name only."""
    if isinstance(function, types.FunctionType):
        code = function.__code__.replace(co_name="forward")
        named = types.FunctionType(code, function.__globals__, "forward", function.__defaults__, function.__closure__)
        named.__kwdefaults__ = function.__kwdefaults__
        return named

    def forward(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    # Inputs and dynamic_shapes refer to the function's parameters; a function in C may have no signature.
    with contextlib.suppress(ValueError):
        forward.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return forward


def as_module(model: Any) -> torch.nn.Module:
    """Return the model as a module: a module itself, or a module that calls a function."""
    if isinstance(model, torch.nn.Module):
        return as_submodule(model) if isinstance(model, torch.jit.ScriptModule) else model
    if callable(model) and not isinstance(model, type):
        return _Function(model)
    raise InputError(
        f"The model is a {type(model).__name__}, which can't be captured.",
        fix="pass an nn.Module, a function of tensors, or a torch.export.ExportedProgram"
        + (f"; {model.__name__} is a class: pass an instance of it." if isinstance(model, type) else "."),
    )


def load_program(path: Path) -> torch.export.ExportedProgram:
    """Read a ``.pt2`` file.

    Raises:
        InputError: The file is missing or is not an exported program.
    """
    if not path.is_file():
        raise InputError(f"There is no file {str(path)!r}.", fix="check the path.")
    try:
        return torch.export.load(str(path))
    except Exception as error:
        raise InputError(
            f"{str(path)!r} is not an exported program that this version of torch can read: {first_line(error)}",
            fix="write it with torch.export.save, with the same version of torch.",
            details=str(error),
        ) from error
