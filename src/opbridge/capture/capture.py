"""Stage 1, link 1: ``capture`` a model as a graph with ``torch.export``."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import re
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from opbridge.capture.failures import explain_capture_failure
from opbridge.capture.hooks import AROUND
from opbridge.capture.rewriting import rewriting
from opbridge.catalog.declare.spec import OpSpec
from opbridge.errors import InputError, first_line
from opbridge.torch_graph import internals as torch_internals
from opbridge.torch_graph.dimensions import arguments_by_name, bounded_inputs, dimension_names, without_names
from opbridge.torch_graph.freeze import freeze_program, frozen, frozen_copy, without_gradients
from opbridge.torch_graph.outputs import opening_outputs
from opbridge.torch_graph.python_sizes import dynamic_builtins
from opbridge.torch_graph.signature import user_inputs, user_outputs
from opbridge.torch_graph.silence import silenced
from opbridge.torch_graph.sources import FixedSize
from opbridge.torch_graph.state import keeping_state

__all__ = ["Captured", "as_module", "capture"]


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
        rewrites: The rewrites that were used.
        was_training: Whether the model was in training mode. It is captured in evaluation mode.
        declared: The mappings of operators that this capture created for autograd.Functions, if that is enabled.
    """

    program: torch.export.ExportedProgram
    module: torch.nn.Module | None
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    dimension_names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    bounded_inputs: frozenset[str] = frozenset()
    rewrites: tuple[str, ...] = ()
    was_training: bool = False
    declared: tuple[OpSpec, ...] = ()


def capture(
    model: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    rewrites: Sequence[OpSpec] = (),
) -> Captured:
    """Capture a model as a graph.

    Args:
        model: An ``nn.Module``, a function of tensors, or an ``ExportedProgram``.
        args: Example inputs; a single tensor is the only input.
        kwargs: Example inputs by keyword.
        dynamic_shapes: The dynamic dimensions, in the form of ``torch.export.export``; a dimension may also be named by
            a string.
        input_names: The ONNX names of the inputs; by default the parameters' names.
        output_names: The ONNX names of the outputs; by default the keys of a dict output, otherwise "output".
        rewrites: The replacements of Python functions to use during the capture.

    Raises:
        CaptureError: torch.export can't capture the model; the message names the line in the user's source.
        InputError: The arguments do not fit the model, or the names do not fit its inputs and outputs.
    """
    if isinstance(model, torch.export.ExportedProgram):
        return _from_program(model, input_names, output_names)
    module = as_module(model)
    positional = (args,) if isinstance(args, torch.Tensor) else tuple(args)
    positional, keywords = without_gradients((positional, dict(kwargs or {})))
    # The lock in rewriting is acquired first, because two threads must not freeze a model at the same time.
    with rewriting(rewrites) as used, frozen(module) as was_training, contextlib.ExitStack() as stack:
        observers = [stack.enter_context(around()) for around in AROUND]
        program = _export(module, positional, keywords, dynamic_shapes)
        freeze_program(program)
    declared = tuple(spec for observer in observers for spec in observer.finish(program))
    arguments = arguments_by_name(module, positional, keywords)
    return Captured(
        program=program,
        module=module,
        args=positional,
        kwargs=keywords,
        input_names=_input_names(program, input_names),
        output_names=_output_names(program, output_names, _input_names(program, input_names)),
        dimension_names=dimension_names(program, dynamic_shapes, arguments),
        bounded_inputs=bounded_inputs(program, dynamic_shapes, arguments),
        rewrites=tuple(dict.fromkeys(used)),
        was_training=was_training,
        declared=declared,
    )


def _from_program(program: torch.export.ExportedProgram, inputs: Any, outputs: Any) -> Captured:
    program = frozen_copy(program)
    args, kwargs = program.example_inputs or ((), {})
    names = _input_names(program, inputs)
    return Captured(program, None, tuple(args), dict(kwargs), names, _output_names(program, outputs, names))


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
        return model
    if callable(model) and not isinstance(model, type):
        return _Function(model)
    raise InputError(
        f"The model is a {type(model).__name__}, which can't be captured.",
        fix="pass an nn.Module, a function of tensors, or a torch.export.ExportedProgram"
        + (f"; {model.__name__} is a class: pass an instance of it." if isinstance(model, type) else "."),
    )


def _export(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any
) -> torch.export.ExportedProgram:
    shapes = without_names(dynamic_shapes)
    fixed: list[FixedSize] = []
    try:
        settings = torch_internals.capturing(shapes)
        state = keeping_state(module, contents_of_buffers=False)
        noting = torch_internals.noting_fixed_sizes(fixed)
        with state, silenced(), settings, noting, torch.no_grad(), opening_outputs(module), dynamic_builtins():
            return torch.export.export(module, args, kwargs or None, dynamic_shapes=shapes, strict=False)
    except Exception as error:
        with keeping_state(module):
            explained = explain_capture_failure(error, module, args, kwargs, dynamic_shapes=shapes, fixed_sizes=fixed)
        raise explained from error


def _input_names(program: torch.export.ExportedProgram, given: Sequence[str] | None) -> tuple[str, ...]:
    names = user_inputs(program)
    return _checked(given, names, "input") if given is not None else tuple(names)


def _output_names(
    program: torch.export.ExportedProgram, given: Sequence[str] | None, inputs: Sequence[str]
) -> tuple[str, ...]:
    positions = user_outputs(program)
    names = _default_output_names(program, positions)
    if given is not None:
        names = list(_checked(given, names, "output"))
        clash = sorted(set(names) & set(inputs))
        if clash:
            raise InputError(
                f"output_names: {clash[0]!r} is the name of an input as well.", fix="give the output another name."
            )
    return tuple(f"{name}_out" if name in inputs else name for name in names)


def _default_output_names(program: torch.export.ExportedProgram, positions: Sequence[int]) -> list[str]:
    """The keys of a dict or dataclass output, otherwise output or output_0, output_1, ..."""
    tree = program.call_spec.out_spec
    paths: list[Any] = [()] * (max(positions, default=-1) + 1)
    if tree is not None:
        leaves = torch.utils._pytree.tree_unflatten(list(range(tree.num_leaves)), tree)
        for path, leaf in torch.utils._pytree.tree_flatten_with_path(leaves)[0]:
            if leaf < len(paths):
                paths[leaf] = path
    names = []
    for position in positions:
        words = [str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", "")))) for key in paths[position]]
        text = re.sub(r"\W+", "_", "_".join(words))
        names.append(text if text and not text[0].isdigit() else f"output_{text}".rstrip("_"))
    return names


def _checked(given: Sequence[str], expected: Sequence[str], kind: str) -> tuple[str, ...]:
    if len(given) != len(expected):
        raise InputError(
            f"{kind}_names has {len(given)} names, but the model has {len(expected)} {kind}s: {', '.join(expected)}.",
            fix=f"give {len(expected)} names, in this order.",
        )
    repeated = sorted({name for name in given if list(given).count(name) > 1})
    if repeated:
        raise InputError(f"{kind}_names: {repeated[0]!r} is there twice.", fix=f"give every {kind} a name of its own.")
    return tuple(given)


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
