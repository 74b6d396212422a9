"""The installed TVM: the only module that imports it and that uses internals of its ONNX frontend."""

from __future__ import annotations

import contextlib
import functools
import io
import re
import threading
import warnings
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import TYPE_CHECKING, Any

from opbridge.engines.importing import import_engine
from opbridge.errors import EngineError

if TYPE_CHECKING:
    import onnx

__all__ = ["converted_operators", "import_onnx", "newest_version", "one_line", "runtime", "version"]

_INSTALL = "pip install --upgrade apache-tvm"
_VERSION = re.compile(r"_impl_v(\d+)$")
_LOCK = threading.Lock()


@functools.cache
def runtime() -> Any:
    """The ``tvm`` module.

    Raises:
        EngineNotInstalledError: The package is not installed, or can't be imported.
    """
    return import_engine("tvm", "tvm.relax", has="compile", package="apache-tvm", install=_INSTALL)


def version() -> str:
    """The version of TVM. Raises EngineNotInstalledError if the package is missing."""
    runtime()
    return metadata.version("apache-tvm")


def _frontend() -> Any:
    """The module of the ONNX frontend, which has the table of its converters.

    The table is private, but TVM has no public list of operators and no public way to add one. Only this file uses it.
    """
    runtime()
    from tvm.relax.frontend.onnx import onnx_frontend

    if not callable(getattr(onnx_frontend, "_get_convert_map", None)) or not hasattr(onnx_frontend, "OnnxOpConverter"):
        raise EngineError(
            f"opbridge does not know the ONNX frontend of TVM {version()}: it has no table of converters.",
            fix=f"install a release that it was tested with: {_INSTALL}",
        )
    return onnx_frontend


@functools.cache
def converted_operators() -> frozenset[str]:
    """The operators of the standard domain that the installed frontend converts."""
    # The frontend handles these in its loop over the nodes.
    return frozenset(_frontend()._get_convert_map()) | {"Constant", "If"}


@functools.cache
def newest_version() -> int:
    """The newest operator version for which the installed frontend has a converter."""
    found = (
        int(match[1])
        for converter in _frontend()._get_convert_map().values()
        for name in dir(converter)
        if (match := _VERSION.match(name))
    )
    return max(found, default=1)


def import_onnx(model: onnx.ModelProto, calls: Mapping[str, Any]) -> Any:
    """An IRModule of a model.

    Args:
        model: A model without model-local functions.
        calls: The converters of custom operators, by name: functions of the block builder and the inputs.

    Raises:
        EngineError: The frontend refuses the model; the message is TVM's.
    """
    frontend = _frontend()
    made = {name: _converter(frontend, call) for name, call in calls.items()}
    with _LOCK, _extended(frontend, made), _quiet():
        try:
            return frontend.from_onnx(model)
        except Exception as error:
            raise EngineError(
                f"TVM {version()} can't convert the model: {one_line(error)}",
                fix="run `opbridge diagnose --engine tvm` on the model to see what TVM does not support.",
                details=str(error),
            ) from error


def _converter(frontend: Any, call: Any) -> Any:
    def convert(cls: Any, builder: Any, inputs: Any, attributes: Any, parameters: Any) -> Any:
        return call(builder, list(inputs))

    return type("KernelCall", (frontend.OnnxOpConverter,), {"_impl_v1": classmethod(convert)})


@contextlib.contextmanager
def _extended(frontend: Any, made: Mapping[str, Any]) -> Iterator[None]:
    real = frontend._get_convert_map
    frontend._get_convert_map = lambda: {**real(), **made}
    try:
        yield
    finally:
        frontend._get_convert_map = real


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the frontend's output: it prints the errors that it raises, and warns about names that it changes."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def one_line(error: BaseException) -> str:
    """The message of a TVM error, without its stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    message_lines = [line for line in lines if not line.startswith(("File ", "Traceback", "^", "at "))]
    return (" ".join(message_lines) or type(error).__name__)[:400]
