"""Captures a model whose ``forward`` changes buffers, so that each of them is an input and an output of the program."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from typing import Any

import torch

from opbridge.capture.assumption import Assume
from opbridge.capture.capture import Captured, StateBuffer, as_module, capture
from opbridge.catalog.declare.spec import OpSpec
from opbridge.errors import InputError
from opbridge.findings import buffer_mutation
from opbridge.torch_graph.attribute_state import changed_attributes_as_buffers
from opbridge.torch_graph.dimensions import arguments_by_name
from opbridge.torch_graph.outputs import opened
from opbridge.torch_graph.variadic import by_input, explicit_parameters

__all__ = ["Stateful", "capture_with_state"]


class Stateful(torch.nn.Module):
    """Calls a module with the values of some buffers as keyword inputs, and returns their next values too.

    Args:
        module: The module, whose own buffers keep their values.
        buffers: The name of each buffer, by the name of its input.
    """

    def __init__(self, module: torch.nn.Module, buffers: Mapping[str, str]) -> None:
        super().__init__()
        self.module = module
        self.training = module.training
        self.forward = _forward(module, dict(buffers))


def _forward(module: torch.nn.Module, buffers: Mapping[str, str]) -> Callable[..., Any]:
    """The ``forward`` of :class:`Stateful`, with the parameters of the module's own and one for each buffer."""

    def forward(*args: Any, **kwargs: Any) -> tuple[Any, tuple[torch.Tensor, ...]]:
        state = {buffer: kwargs.pop(name).clone() for name, buffer in buffers.items()}
        outputs = opened(torch.func.functional_call(module, state, args, kwargs))
        # An output may be the buffer itself, and the outputs of a program are distinct tensors.
        return outputs, tuple(state[buffer].clone() for buffer in buffers.values())

    own = inspect.signature(module.forward)
    parameters = list(own.parameters.values())
    place = next((i for i, item in enumerate(parameters) if item.kind is Parameter.VAR_KEYWORD), len(parameters))
    parameters[place:place] = [Parameter(name, Parameter.KEYWORD_ONLY) for name in buffers]
    forward.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    return forward


def capture_with_state(
    model: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    rewrites: Sequence[OpSpec] = (),
    assume: Assume = False,
) -> Captured:
    """Capture a model with the buffers that its ``forward`` changes as inputs and outputs.

    The buffer ``cell.h`` becomes the input ``state_cell_h``, behind the model's own inputs, and the output
    ``next_state_cell_h``, behind its own outputs. The parameters are those of
    :func:`~opbridge.capture.capture.capture`; ``dynamic_shapes`` may name such an input, and ``input_names`` and
    ``output_names`` may include them or not.

    Returns:
        The captured model; without any state if no buffer changes.

    Raises:
        InputError: The model is an ``ExportedProgram``, or a buffer changes its shape or its element type.
    """
    if isinstance(model, torch.export.ExportedProgram):
        raise InputError(
            "The state of an ExportedProgram can't become inputs and outputs.",
            fix="pass the nn.Module that it was exported from, with its example inputs.",
        )
    module = as_module(model)
    positional = (args,) if isinstance(args, torch.Tensor) else tuple(args)
    keywords = dict(kwargs or {})
    with changed_attributes_as_buffers(module, positional, keywords):
        return _capture_with_state(
            module, positional, keywords, dynamic_shapes, input_names, output_names, rewrites, assume
        )


def _capture_with_state(
    module: torch.nn.Module,
    positional: tuple[Any, ...],
    keywords: dict[str, Any],
    dynamic_shapes: Any,
    input_names: Sequence[str] | None,
    output_names: Sequence[str] | None,
    rewrites: Sequence[OpSpec],
    assume: Assume,
) -> Captured:
    # A batch that varies does not fit a buffer of the example's batch size, so that this capture has no dynamic sizes.
    plain = capture(module, positional, keywords, rewrites=rewrites, assume=assume)
    state = _changed_buffers(plain)
    inputs, outputs = [item.input for item in state], [item.output for item in state]
    names: dict[str, Any] = {
        "input_names": _completed(input_names, plain.input_names, inputs),
        "output_names": _completed(output_names, plain.output_names, outputs),
        "rewrites": rewrites,
        "assume": assume,
    }
    if not state:
        return capture(module, positional, keywords, dynamic_shapes=dynamic_shapes, **names)
    buffers = dict(module.named_buffers())
    stateful = Stateful(module, {item.input: item.buffer for item in state})
    given = {item.input: buffers[item.buffer].detach().clone() for item in state}
    captured = capture(
        stateful,
        positional,
        {**keywords, **given},
        dynamic_shapes=_with_state(dynamic_shapes, module, positional, keywords, inputs),
        **names,
    )
    _check_constant_shapes(captured, state)
    return dataclasses.replace(captured, state=state)


def _changed_buffers(plain: Captured) -> tuple[StateBuffer, ...]:
    """The buffers that ``forward`` changes, in the order of the module, with names that no input or output has."""
    assert plain.module is not None
    changed = {finding.target for finding in buffer_mutation.detect(plain.program)}
    taken = {*plain.input_names, *plain.output_names}
    found: list[StateBuffer] = []
    for buffer, _ in plain.module.named_buffers():
        if buffer in changed:
            name = plainest = f"state_{buffer.replace('.', '_')}"
            number = 1
            while name in taken or f"next_{name}" in taken:
                name, number = f"{plainest}_{number}", number + 1
            taken |= {name, f"next_{name}"}
            found.append(StateBuffer(buffer, name, f"next_{name}"))
    return tuple(found)


def _completed(given: Sequence[str] | None, own: Sequence[str], state: Sequence[str]) -> list[str]:
    """The user's names, or the model's own, with those of the state behind them unless they are there already."""
    names = list(own if given is None else given)
    return names if len(names) == len(own) + len(state) else [*names, *state]


def _with_state(
    dynamic_shapes: Any, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], state: Sequence[str]
) -> Any:
    """``dynamic_shapes`` by the names of the inputs, with an entry for each buffer."""
    if not dynamic_shapes:
        return None
    with explicit_parameters(module, args, kwargs):
        names = list(arguments_by_name(module, args, kwargs))
    shapes = by_input(dynamic_shapes, module, args, kwargs)
    by_name = dict(shapes) if isinstance(shapes, Mapping) else dict(zip(names, shapes, strict=False))
    return {name: by_name.get(name) for name in (*names, *state)}


def _check_constant_shapes(captured: Captured, state: Sequence[StateBuffer]) -> None:
    """Raise InputError if the next value of a buffer does not fit the buffer."""
    values = {node.name: node.meta.get("val") for node in captured.program.graph.nodes}
    signature = captured.program.graph_signature
    before, after = (
        dict(zip(names, which, strict=False))
        for names, which in (
            (captured.input_names, signature.user_inputs),
            (captured.output_names, signature.user_outputs),
        )
    )
    for item in state:
        old, new = values.get(str(before[item.input])), values.get(str(after[item.output]))
        if isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor) and _form(old) != _form(new):
            raise InputError(
                f"The buffer {item.buffer!r} has the shape {_form(old)} before a call of forward and {_form(new)} "
                "after it, so that it can't be the input of the next call.",
                fix="keep the state in a buffer of constant shape and element type, such as a ring buffer.",
            )


def _form(tensor: torch.Tensor) -> str:
    sizes = ", ".join(map(str, tensor.shape))
    return f"[{sizes}] of {str(tensor.dtype).removeprefix('torch.')}"
