"""Inputs that a model takes by ``*args`` and ``**kwargs``, under names of their own."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from inspect import Parameter
from typing import Any

import torch

from opbridge.torch_graph.dimensions import arguments_by_name
from opbridge.torch_graph.input_parts import map_declared

__all__ = ["by_input", "explicit_parameters"]

_VARIADIC = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


@contextlib.contextmanager
def explicit_parameters(module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[None]:
    """Make ``module.forward`` name each of these inputs, instead of ``*args`` and ``**kwargs``, inside the block.

    torch.export cannot decompose a program with a dynamic size in ``**kwargs``, and groups the sizes of ``*args``.
    """
    original = module.forward
    signature = _explicit(inspect.signature(original), args, kwargs)
    if signature is None:
        yield
        return

    def forward(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs)

    forward.__signature__ = signature  # type: ignore[attr-defined]
    before = module.__dict__.get("forward")
    module.__dict__["forward"] = forward
    try:
        yield
    finally:
        del module.__dict__["forward"]
        if before is not None:
            module.__dict__["forward"] = before


def by_input(dynamic_shapes: Any, module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """``dynamic_shapes`` with an entry for each input, in the form that torch.export takes for it.

    torch.export groups the entries of ``*args``, and expects all others. An input without an entry is not dynamic.
    """
    if not isinstance(dynamic_shapes, (tuple, list, Mapping)):
        return dynamic_shapes
    shapes = _ungrouped(dynamic_shapes, inspect.signature(module.forward).parameters, args)
    try:
        with explicit_parameters(module, args, kwargs):
            arguments = arguments_by_name(module, args, kwargs)
    except TypeError:  # The inputs do not fit, which torch.export reports.
        return shapes
    of_arguments = shapes if isinstance(shapes, Mapping) else dict(zip(arguments, shapes, strict=False))
    formed = {
        name: map_declared(lambda path, leaf, entry: entry, name, arguments.get(name), entry)
        for name, entry in of_arguments.items()
    }
    return formed if isinstance(shapes, Mapping) else (*formed.values(), *shapes[len(formed) :])


def _ungrouped(dynamic_shapes: Any, parameters: Mapping[str, Parameter], args: Sequence[Any]) -> Any:
    if isinstance(dynamic_shapes, tuple | list):
        *named, last = dynamic_shapes or (None,)
        is_grouped = isinstance(last, tuple | list) and any(isinstance(entry, Mapping) for entry in last)
        # Otherwise it is the entry of an input that is a container.
        is_grouped &= len(dynamic_shapes) != len(args) or isinstance(args[-1], torch.Tensor)
        takes_several = any(parameter.kind is Parameter.VAR_POSITIONAL for parameter in parameters.values())
        return (*named, *last) if takes_several and is_grouped else tuple(dynamic_shapes)
    shapes = dict(dynamic_shapes)
    for parameter in parameters.values():
        grouped = shapes.get(parameter.name)
        if parameter.kind is Parameter.VAR_POSITIONAL and isinstance(grouped, Sequence):
            del shapes[parameter.name]
            shapes |= {f"{parameter.name}_{position}": entry for position, entry in enumerate(grouped)}
        if parameter.kind is Parameter.VAR_KEYWORD and isinstance(grouped, Mapping):
            del shapes[parameter.name]
            shapes |= grouped
        if shapes and parameter.default is Parameter.empty and parameter.kind not in _VARIADIC:
            shapes.setdefault(parameter.name, None)
    return shapes


def _explicit(signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> inspect.Signature | None:
    """The signature with a parameter for each input; None if no input is taken by ``*args`` or ``**kwargs``."""
    variadic = {p.name for p in signature.parameters.values() if p.kind in _VARIADIC}
    try:
        bound = signature.bind(*args, **kwargs).arguments
    except TypeError:
        return None
    if not variadic & bound.keys():
        return None
    parameters: list[Parameter] = []
    for parameter in signature.parameters.values():
        if parameter.kind is Parameter.VAR_POSITIONAL and bound.get(parameter.name):
            names = [f"{parameter.name}_{position}" for position in range(len(bound[parameter.name]))]
            # All parameters before them are given, and must not have defaults before others without.
            parameters = [before.replace(default=Parameter.empty) for before in parameters]
            parameters += [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names]
        elif parameter.kind is Parameter.VAR_KEYWORD:
            parameters += [Parameter(name, Parameter.KEYWORD_ONLY) for name in bound.get(parameter.name, {})]
        else:
            parameters.append(parameter)
    return signature.replace(parameters=parameters)
