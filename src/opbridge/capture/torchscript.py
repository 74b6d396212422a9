"""TorchScript submodules as modules with Python code, while a model is captured."""

from __future__ import annotations

import contextlib
import hashlib
import linecache
from typing import Any

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
            return getattr(self.__dict__["_scripted"], name)


def _in_python(scripted: torch.jit.ScriptModule) -> nn.Module | None:
    """A module whose ``forward`` is Python; None if its graph has a node without a counterpart."""
    graph = getattr(scripted, "inlined_graph", None)
    if graph is None:
        return None
    try:
        source = python_source(graph, _parameters(scripted))
    except Untranslatable:
        return None
    part: nn.Module = type("TorchScript", (_Part,), {"forward": _compiled(source.text, scripted)})(scripted)
    for name, value in source.constants.items():
        if isinstance(value, torch.Tensor):
            part.register_buffer(name, _plain(value), persistent=False)
        else:
            setattr(part, name, value)
    return part


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in the layout of all others, if it has that of oneDNN."""
    return tensor.to_dense() if tensor.is_mkldnn else tensor


def _compiled(text: str, scripted: torch.jit.ScriptModule) -> Any:
    """The function ``forward``, in a file that exists in Python's cache of source lines only."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    file = f"/torchscript/{getattr(scripted, 'original_name', 'module')}_{digest}.py"
    # Without a time, the source stays in the cache, from which lines of errors are read.
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    namespace = dict(NAMESPACE)
    exec(compile(text, file, "exec", dont_inherit=True), namespace)
    return namespace["forward"]


def as_submodule(scripted: torch.jit.ScriptModule) -> nn.Module:
    """A module with the same parameters of ``forward`` that calls a TorchScript module."""
    try:
        # nn.LSTM has several methods instead of forward.
        parameters = _parameters(scripted) if hasattr(scripted, "inlined_graph") else ["*inputs"]
    except Untranslatable:
        parameters = ["*inputs"]
    names = ", ".join(parameter.partition("=")[0] for parameter in parameters)
    text = f"def forward({', '.join(['self', *parameters])}):\n    return self.scripted({names})\n"
    calling = type("TorchScript", (nn.Module,), {"forward": _compiled(text, scripted)})()
    calling.add_module("scripted", scripted)
    return calling.train(getattr(scripted, "training", False))


def _parameters(scripted: Any) -> list[str]:
    """The parameters of ``forward`` after the module, with their defaults."""
    arguments = scripted.forward.schema.arguments[1:]
    return [f"{one.name}={_default(one.default_value)}" if one.has_default_value() else one.name for one in arguments]


def _default(value: Any) -> str:
    text = literal(value)
    if text is None:
        raise Untranslatable(f"a default of {value}")
    return text
