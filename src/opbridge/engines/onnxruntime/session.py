"""A model loaded in ONNX Runtime."""

from __future__ import annotations

import ctypes
import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from opbridge.engines.base import Session, TensorSpec
from opbridge.engines.feeds import checked_feeds
from opbridge.engines.onnx_specs import check_model_file, check_threads
from opbridge.engines.onnxruntime import native
from opbridge.errors import EngineError, InputError, OpbridgeError
from opbridge.kernels.dtypes import is_native, numpy_dtype
from opbridge.kernels.library import check_file

__all__ = ["OnnxRuntimeSession", "load_session"]

_DTYPES = {
    "bfloat16": "bfloat16",
    "bool": "bool",
    "double": "float64",
    "float": "float32",
    "float16": "float16",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2",
    "float8e5m2fnuz": "float8_e5m2fnuz",
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "string": "str",
    "uint8": "uint8",
    "uint16": "uint16",
    "uint32": "uint32",
    "uint64": "uint64",
}
# ONNX's numbers (TensorProto.DataType) of the types that NumPy does not have.
_ONNX_NUMBERS = {
    "bfloat16": 16,
    "float8_e4m3fn": 17,
    "float8_e4m3fnuz": 18,
    "float8_e5m2": 19,
    "float8_e5m2fnuz": 20,
}


def load_session(
    path: Path,
    *,
    threads: int | None,
    providers: Sequence[str] | None,
    libraries: Sequence[Path] = (),
    lean: bool = False,
    profile: Path | None = None,
) -> OnnxRuntimeSession:
    """Implement :meth:`opbridge.engines.onnxruntime.engine.OnnxRuntimeEngine.load` and ``load_lean``.

    If ``profile`` is given, the time of each node is written to a file whose name begins with it.
    """
    onnxruntime = native.runtime()
    check_threads(threads)
    chosen = _checked_providers(providers, onnxruntime.get_available_providers())
    check_model_file(path)
    options = onnxruntime.SessionOptions()
    # Errors are raised, so they need not be printed to stderr as well.
    options.log_severity_level = 4
    if threads is not None:
        options.intra_op_num_threads = threads
    if lean:
        # Each of these would hold weights twice: folded casts, repacked matrices, retained blocks, early casts.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.add_session_config_entry("session.disable_prepacking", "1")
        options.enable_cpu_mem_arena = False
        options.enable_mem_pattern = False
        options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile)
    for library in libraries:
        _register(options, Path(library))
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=chosen)
    except Exception as error:
        raise _load_error(path, error) from error
    return OnnxRuntimeSession(session)


def _register(options: Any, library: Path) -> None:
    check_file(library)
    try:
        options.register_custom_ops_library(str(library.absolute()))
    except Exception as error:
        raise EngineError(
            f"ONNX Runtime {native.runtime().__version__} refuses the library {library.name!r}: "
            f"{native.clean_message(error)}",
            fix="build its kernels and ONNX Runtime's adapter again, with one version of opbridge, on this machine.",
            details=str(error),
        ) from error


def _checked_providers(providers: Sequence[str] | None, available: Sequence[str]) -> list[str]:
    if providers is None:
        return ["CPUExecutionProvider"]
    if isinstance(providers, str) or not providers:
        raise InputError(
            f"providers={providers!r}: a list of execution providers is needed.",
            fix='pass, for example, ["CPUExecutionProvider"].',
        )
    for name in providers:
        if name not in available:
            close = difflib.get_close_matches(name, available, n=1)
            raise InputError(
                f"This onnxruntime has no execution provider {name!r}. It has: {', '.join(available)}.",
                fix=f"did you mean {close[0]!r}?" if close else "install the build of onnxruntime that has it.",
            )
    return list(providers)


def _load_error(path: Path, error: Exception) -> OpbridgeError:
    """The error for a model that can't be loaded: InputError for a faulty file, EngineError for the engine's limits."""
    message = native.clean_message(error)
    lowered = message.lower()
    kind = type(error).__name__
    if kind in ("InvalidProtobuf", "NoSuchFile") or re.search(r"no graph was found|not have a graph", message, re.I):
        return InputError(
            f"{path.name!r} is not an ONNX model, or is truncated: {message}",
            fix="export or download it again.",
            details=str(path),
        )
    if "external data" in lowered or "external_data" in lowered or "external initializer" in lowered:
        return InputError(
            f"The external data of {path.name!r} is missing or truncated: {message}",
            fix="keep the model and its data file together in one folder; copy both again.",
            details=str(path),
        )
    return EngineError(
        f"ONNX Runtime {native.runtime().__version__} refuses {path.name!r}: {message}",
        fix="run `opbridge diagnose` on the model to see what is not supported, or install a newer onnxruntime.",
        details=str(error),
    )


def _specs(arguments: Sequence[Any], kind: str) -> tuple[TensorSpec, ...]:
    specs = []
    for argument in arguments:
        dtype = _DTYPES.get(argument.type.removeprefix("tensor(").removesuffix(")"))
        if dtype is None:
            raise EngineError(
                f"The model's {kind} {argument.name!r} is a {argument.type}, which NumPy arrays can't hold.",
                fix=f"export the model so that its {kind}s are plain tensors.",
            )
        shape = tuple(
            size if isinstance(size, int | str) and size != "" else f"{argument.name}.{axis}"
            for axis, size in enumerate(argument.shape)
        )
        specs.append(TensorSpec(argument.name, dtype, shape))
    return tuple(specs)


class OnnxRuntimeSession(Session):
    """A model in ONNX Runtime. It may be run from several threads at once."""

    def __init__(self, session: Any) -> None:
        self.inputs = _specs(session.get_inputs(), "input")
        self.outputs = _specs(session.get_outputs(), "output")
        self._session = session
        self._native = all(is_native(spec.dtype) for spec in (*self.inputs, *self.outputs))

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the model once; see :meth:`opbridge.engines.base.Session.run`."""
        arrays = checked_feeds(self.inputs, feeds)
        names = [spec.name for spec in self.outputs]
        try:
            if self._native:
                results = self._session.run(names, arrays)
            else:
                values = {spec.name: _to_engine(spec, arrays[spec.name]) for spec in self.inputs}
                results = self._session.run_with_ort_values(names, values)
                results = [_from_engine(spec, value) for spec, value in zip(self.outputs, results, strict=True)]
        except Exception as error:
            message = native.clean_message(error)
            out_of_memory = isinstance(error, MemoryError) or "allocate memory" in message or "bad_alloc" in message
            raise EngineError(
                f"ONNX Runtime failed while running the model: {message}",
                fix="use smaller inputs, or a machine with more memory."
                if out_of_memory
                else "check that the inputs' sizes and values are ones that the model takes; "
                "`opbridge verify` shows whether it also fails on inputs like those of the export.",
                details=str(error),
            ) from error
        return dict(zip(names, results, strict=True))

    def end_profiling(self) -> str:
        """The file with the times of the runs, for a session that was loaded with ``profile``."""
        return str(self._session.end_profiling())


def _to_engine(spec: TensorSpec, array: np.ndarray) -> Any:
    """An OrtValue; a type that NumPy does not have is passed as integers of its width, with its ONNX number."""
    value = native.runtime().OrtValue
    if is_native(spec.dtype):
        return value.ortvalue_from_numpy(array)
    bits = array.view(f"uint{8 * array.dtype.itemsize}")
    return value.ortvalue_from_numpy_with_onnx_type(bits, _ONNX_NUMBERS[spec.dtype])


def _from_engine(spec: TensorSpec, value: Any) -> np.ndarray:
    """The OrtValue's contents as an array that owns its memory."""
    if is_native(spec.dtype):
        array: np.ndarray = value.numpy()
        return array
    array = np.empty(value.shape(), numpy_dtype(spec.dtype))
    if array.nbytes:
        ctypes.memmove(array.ctypes.data, value.data_ptr(), array.nbytes)
    return array
