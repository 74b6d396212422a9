"""Restores the names of torch.onnx that old code imports and that were moved or removed, while the bridge is on.

Each module gets a ``__getattr__``, which Python calls only for names that the module does not have. A name that still
has a meaning is restored. Any other name is an object that can be imported, and whose use is an error.
"""

from __future__ import annotations

import contextlib
import enum
import importlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import torch

from opbridge.errors import InputError
from opbridge.legacy import symbolic_registry
from opbridge.torch_graph import internals as torch_internals

__all__ = ["restored"]

_SHIMS = ("utils", "symbolic_helper", *(f"symbolic_opset{n}" for n in range(7, 21)))
"""Modules of torch.onnx that have kept only some of their names; the others moved to the internals of the exporter."""

_MOVED = {
    "torch.onnx._globals": "_globals",
    "torch.onnx._type_utils": "_type_utils",
    "torch.onnx._internal.jit_utils": "jit_utils",
    "torch.onnx._internal.onnx_proto_utils": "onnx_proto_utils",
    "torch.onnx._internal.registration": "registration",
}
"""Modules that moved to the internals of the exporter as a whole."""


class ExportTypes(enum.Enum):
    """The former file formats of ``torch.onnx.export``, which now writes protobuf files only."""

    PROTOBUF_FILE = "Protobuf"
    ZIP_ARCHIVE = "ZIP archive"
    COMPRESSED_ZIP_ARCHIVE = "compressed ZIP archive"
    DIRECTORY = "directory"


class _Gone:
    """A removed name: it can be imported, and any use of it is an error that names its successor."""

    def __init__(self, name: str, fix: str) -> None:
        vars(self).update(_name=name, _fix=fix)

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise InputError(f"{self._name} was removed from PyTorch.", fix=self._fix)

    __call__ = __enter__ = __iter__ = __getitem__ = __setattr__ = _refuse

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse()

    def __repr__(self) -> str:
        return f"<{self._name}, which was removed from PyTorch>"


def _export(model: Any, args: Any, f: Any = None, *positional: Any, **options: Any) -> Any:
    """Replace ``torch.onnx._export``: export the model, and return its outputs."""
    torch.onnx.export(model, args, f, *positional, **options)
    with torch.no_grad():
        return model(*(args if isinstance(args, (tuple, list)) else (args,)))


def _export_to_text(model: Any, args: Any, *positional: Any, **options: Any) -> str:
    """Replace ``torch.onnx.export_to_pretty_string``: export the model, and return it as text."""
    return str(torch.onnx.export(model, args, None, *positional, **options))


def _setter(name: str) -> Callable[[Any], None]:
    def set_it(value: Any) -> None:
        setattr(torch_internals.old_exporter("_globals").GLOBALS, name, value)

    return set_it


def _setting(name: str) -> Callable[[], Any]:
    return lambda: getattr(torch_internals.old_exporter("_globals").GLOBALS, name)


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Do nothing: the log that this function switched was removed."""


def _is(value: Any) -> Callable[[], Any]:
    return lambda: value


def _gone(name: str, fix: str) -> Callable[[], Any]:
    return lambda: _Gone(name, fix)


_CAFFE2 = "remove it: Caffe2 and its symbolic functions were removed from PyTorch."
_HELPER = "torch.onnx.symbolic_helper"
_NAMES: dict[str, Callable[[], Any]] = {
    "torch.onnx.CheckerError": lambda: importlib.import_module("onnx").checker.ValidationError,
    "torch.onnx.ExportTypes": _is(ExportTypes),
    "torch.onnx.ONNX_ARCHIVE_MODEL_PROTO_NAME": _is("__MODEL_PROTO"),
    "torch.onnx.PYTORCH_ONNX_CAFFE2_BUNDLE": _is(False),
    "torch.onnx.SymbolicContext": _gone(
        "torch.onnx.SymbolicContext", "use the graph context g, which has the node, its block and the settings."
    ),
    "torch.onnx._export": _is(_export),
    "torch.onnx._optimize_trace": _gone("torch.onnx._optimize_trace", "call torch.onnx.export instead."),
    "torch.onnx._run_symbolic_function": _gone(
        "torch.onnx._run_symbolic_function", "register a symbolic function with torch.onnx.register_custom_op_symbolic."
    ),
    "torch.onnx._type_utils": lambda: torch_internals.old_exporter("_type_utils"),
    "torch.onnx._globals": lambda: torch_internals.old_exporter("_globals"),
    "torch.onnx.disable_log": _is(_nothing),
    "torch.onnx.enable_log": _is(_nothing),
    "torch.onnx.export_to_pretty_string": _is(_export_to_text),
    "torch.onnx.ir_version": lambda: importlib.import_module("onnx").IR_VERSION,
    "torch.onnx.set_training": lambda: torch.onnx.select_model_mode_for_export,
    "torch.onnx.symbolic_caffe2": lambda: sys.modules["torch.onnx.symbolic_caffe2"],
    "torch.onnx.symbolic_registry": _is(symbolic_registry),
    "torch.onnx.utils.export_to_pretty_string": _is(_export_to_text),
    "torch.onnx.utils.is_in_onnx_export": lambda: torch.onnx.is_in_onnx_export,
    "torch.onnx.utils._graph_op": _gone("torch.onnx.utils._graph_op", "use g.op(...) in the symbolic function."),
    "torch.onnx.utils._graph_at": _gone("torch.onnx.utils._graph_at", "use g.at(...) in the symbolic function."),
    "torch.onnx.utils._newNode": _gone("torch.onnx.utils._newNode", "use g.op(...) in the symbolic function."),
    f"{_HELPER}._block_list_in_opset": lambda: torch_internals.old_exporter("symbolic_helper")._block_list_in_opset,
    f"{_HELPER}._default_onnx_opset_version": _is(9),
    f"{_HELPER}._export_onnx_opset_version": _setting("export_onnx_opset_version"),
    f"{_HELPER}._onnx_main_opset": lambda: torch_internals.default_opset(),
    f"{_HELPER}._onnx_shape_inference": _setting("onnx_shape_inference"),
    f"{_HELPER}._onnx_stable_opsets": _is(list(range(7, 21))),
    f"{_HELPER}._operator_export_type": _setting("operator_export_type"),
    f"{_HELPER}._set_onnx_shape_inference": _is(_setter("onnx_shape_inference")),
    f"{_HELPER}._set_operator_export_type": _is(_setter("operator_export_type")),
    f"{_HELPER}._set_opset_version": _is(_setter("export_onnx_opset_version")),
    f"{_HELPER}._set_training_mode": _is(_setter("training_mode")),
    f"{_HELPER}._training_mode": _setting("training_mode"),
    f"{_HELPER}.is_caffe2_aten_fallback": _is(lambda: False),
}
"""The replacement of each name. A name that torch still has is never looked up here."""


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Make the old names available, as attributes and by ``import``, inside the block."""
    settings = torch_internals.old_exporter("_globals").GLOBALS
    before = dict(vars(settings))
    with contextlib.ExitStack() as stack:
        for name in ("", *_SHIMS):
            for module in _modules(name):
                stack.enter_context(_answering(module, f"torch.onnx.{name}".rstrip("."), name))
        stack.enter_context(_importable("torch.onnx.symbolic_registry", symbolic_registry))
        stack.enter_context(_importable("torch.onnx._internal._beartype", _beartype()))
        stack.enter_context(
            _importable("torch.onnx.symbolic_caffe2", _GoneModule("torch.onnx.symbolic_caffe2", _CAFFE2))
        )
        for name, inner in _MOVED.items():
            if (module := torch_internals.old_exporter(inner)) is not None:
                stack.enter_context(_importable(name, module))
        try:
            yield
        finally:
            vars(settings).update(before)


class _GoneModule(types.ModuleType):
    """A removed module: it can be imported, and the use of any of its names is an error that names the successor."""

    def __init__(self, name: str, fix: str) -> None:
        super().__init__(name)
        self._gone = _Gone(name, fix)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._gone

    def __repr__(self) -> str:
        return repr(self._gone)


def _beartype() -> types.ModuleType:
    """A replacement for the removed module whose decorator checked types at run time."""
    module = types.ModuleType("torch.onnx._internal._beartype")
    module.beartype = lambda function: function  # type: ignore[attr-defined]
    return module


def _modules(name: str) -> list[types.ModuleType]:
    """Return the attribute of torch.onnx and the module that ``import`` gives for a name; they may differ."""
    if not name:
        return [torch.onnx]
    shown = vars(torch.onnx).get(name)
    found = [shown, _imported(f"torch.onnx.{name}"), torch_internals.old_exporter(name)]
    return list({id(module): module for module in found if isinstance(module, types.ModuleType)}.values())


def _imported(name: str) -> types.ModuleType | None:
    """Import a module without changing the attribute of its package."""
    parent, _, last = name.rpartition(".")
    package = sys.modules[parent]
    shown = vars(package).get(last)
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
    finally:
        if shown is not None:
            setattr(package, last, shown)


@contextlib.contextmanager
def _answering(module: types.ModuleType, path: str, shim: str) -> Iterator[None]:
    earlier = vars(module).get("__getattr__")

    def find(name: str) -> Any:
        if f"{path}.{name}" in _NAMES:
            return _NAMES[f"{path}.{name}"]()
        inner = torch_internals.old_exporter(shim) if shim else None
        if inner is not None and name in vars(inner):
            return vars(inner)[name]
        if earlier is not None:
            return earlier(name)
        raise AttributeError(f"module {path!r} has no attribute {name!r}")

    module.__getattr__ = find  # type: ignore[method-assign]
    try:
        yield
    finally:
        if earlier is None:
            del module.__getattr__
        else:
            module.__getattr__ = earlier  # type: ignore[method-assign]


@contextlib.contextmanager
def _importable(name: str, module: types.ModuleType) -> Iterator[None]:
    """Make ``import name`` return a module inside the block."""
    earlier = sys.modules.get(name)
    sys.modules[name] = module
    try:
        yield
    finally:
        parent, _, last = name.rpartition(".")
        if vars(sys.modules[parent]).get(last) is module:
            delattr(sys.modules[parent], last)
        if earlier is None:
            sys.modules.pop(name, None)
        else:
            sys.modules[name] = earlier
