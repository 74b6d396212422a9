"""TorchScript submodules as modules with Python code, while a model is captured."""

from __future__ import annotations

import contextlib
import hashlib
import linecache
import types
from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import nn

from opbridge.capture.submodules import replaced_submodules
from opbridge.torch_graph.torchscript_source import NAMESPACE, Untranslatable, literal, python_source

__all__ = ["as_submodule", "scripted_as_python"]


def scripted_as_python(module: nn.Module) -> contextlib.AbstractContextManager[bool]:
    """Replace the TorchScript submodules by modules that compute the same in Python, inside the block.

    A submodule that has no counterpart in Python stays, and torch.export refuses it.
    """
    return replaced_submodules(
        module, lambda child: _in_python(child) if isinstance(child, torch.jit.ScriptModule) else None
    )


class _Part(nn.Module):
    """The parameters, buffers, submodules and other attributes of a TorchScript module, by the same names."""

    def __init__(self, scripted: Any) -> None:
        super().__init__()
        for name, parameter in scripted.named_parameters(recurse=False):
            if not isinstance(parameter, nn.Parameter):  # Those of a loaded module are tensors.
                parameter = nn.Parameter(parameter, requires_grad=parameter.requires_grad)
            self.register_parameter(name, parameter)
        for name, buffer in scripted.named_buffers(recurse=False):
            self.register_buffer(name, _plain(buffer))
        for name, child in scripted.named_children():
            self.add_module(name, _Part(child))
        self.train(getattr(scripted, "training", False))  # A frozen module has no mode.
        object.__setattr__(self, "_scripted", scripted)  # It is no submodule.

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if "_scripted" not in self.__dict__:
                raise
        value = getattr(self.__dict__["_scripted"], name)
        return self._in_python(value) if isinstance(value, torch.ScriptMethod) else value

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call ``forward`` of the TorchScript module, in Python."""
        return self._in_python(self.__dict__["_scripted"].forward)(*args, **kwargs)

    def _in_python(self, method: Any) -> Callable[..., Any]:
        """The method in Python, bound to this module; unchanged if its graph has a node without a counterpart."""
        try:
            function, constants = _function(method, self.__dict__["_scripted"])
        except Untranslatable:
            return cast("Callable[..., Any]", method)
        for name, value in constants.items():
            object.__setattr__(self, name, value)  # A buffer can't be made while torch.export runs the module.
        return types.MethodType(function, self)


def _in_python(scripted: torch.jit.ScriptModule) -> nn.Module | None:
    """A module whose ``forward`` is Python; None if its graph has a node without a counterpart."""
    if not hasattr(scripted, "inlined_graph"):
        return None
    try:
        forward, constants = _function(scripted.forward, scripted)
    except Untranslatable:
        return None
    part: nn.Module = type("TorchScript", (_Part,), {"forward": forward})(scripted)
    for name, value in constants.items():
        if isinstance(value, torch.Tensor):
            part.register_buffer(name, _plain(value), persistent=False)
        else:
            setattr(part, name, value)
    return part


def _function(method: Any, scripted: Any) -> tuple[Callable[..., Any], Mapping[str, Any]]:
    """A method of a TorchScript module as a function, and the constants that it reads as attributes of the module."""
    parameters, defaults = _parameters(method)
    source = python_source(method.inlined_graph, parameters, method.name)
    return _compiled(source.text, method.name, scripted, defaults), source.constants


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in the layout of all others, if it has that of oneDNN."""
    return tensor.to_dense() if tensor.is_mkldnn else tensor


def _compiled(text: str, name: str, scripted: Any, defaults: Mapping[str, Any]) -> Callable[..., Any]:
    """The function of this name, in a file that exists in Python's cache of source lines only."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    file = f"/torchscript/{getattr(scripted, 'original_name', 'module')}_{digest}.py"
    # Without a time, the source stays in the cache, from which lines of errors are read.
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    namespace = {**NAMESPACE, **defaults}
    exec(compile(text, file, "exec", dont_inherit=True), namespace)
    return cast("Callable[..., Any]", namespace[name])


def as_submodule(scripted: torch.jit.ScriptModule) -> nn.Module:
    """A module with the same parameters of ``forward`` that calls a TorchScript module."""
    # nn.LSTM has several methods instead of forward.
    has_forward = hasattr(scripted, "inlined_graph")
    parameters, defaults = _parameters(scripted.forward) if has_forward else (["*inputs"], {})
    names = ", ".join(parameter.partition("=")[0] for parameter in parameters)
    text = f"def forward({', '.join(['self', *parameters])}):\n    return self.scripted({names})\n"
    forward = _compiled(text, "forward", scripted, defaults)
    calling = type("TorchScript", (nn.Module,), {"forward": forward})()
    calling.add_module("scripted", scripted)
    return calling.train(getattr(scripted, "training", False))


def _parameters(method: Any) -> tuple[list[str], dict[str, Any]]:
    """The parameters of a method after the module, with defaults, and the values of defaults without a literal."""
    parameters, values = [], {}
    for argument in method.schema.arguments[1:]:
        text = argument.name
        if argument.has_default_value():
            default = literal(argument.default_value)
            if default is None:
                default = f"default_of_{argument.name}"
                values[default] = argument.default_value
            text += f"={default}"
        parameters.append(text)
    return parameters, values
