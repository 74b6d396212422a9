"""A model loaded in OpenVINO."""

from __future__ import annotations

import difflib
import re
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from opbridge.engines.base import Session, TensorSpec
from opbridge.engines.feeds import checked_feeds
from opbridge.engines.onnx_specs import check_threads, onnx_specs
from opbridge.engines.openvino import native
from opbridge.errors import EngineError, InputError, OpbridgeError
from opbridge.kernels.dtypes import numpy_dtype
from opbridge.kernels.library import KernelLibrary

__all__ = ["OpenVinoSession", "load_session"]

# NumPy dtypes that OpenVINO's tensors are not created from directly.
_FOREIGN = {"bfloat16": "bf16", "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2"}


def load_session(
    path: Path,
    *,
    threads: int | None,
    devices: Sequence[str] | None,
    libraries: Sequence[Path],
    profile: bool = False,
) -> OpenVinoSession:
    """Implement :meth:`OpenVinoEngine.load <opbridge.engines.openvino.engine.OpenVinoEngine.load>`.

    With ``profile``, the session measures the time of each node.
    """
    native.runtime()
    check_threads(threads)
    inputs, outputs = onnx_specs(path)
    core = _core(libraries)
    device = _checked_device(devices, core.available_devices)
    options: dict[str, Any] = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    if profile:
        options["PERF_COUNT"] = True
    if threads is not None and device == "CPU":
        options["INFERENCE_NUM_THREADS"] = threads
    try:
        compiled = core.compile_model(core.read_model(str(path)), device, options)
    except Exception as error:
        raise _load_error(path, error) from error
    return OpenVinoSession(compiled, inputs, outputs)


def _core(libraries: Sequence[Path]) -> Any:
    for library in libraries:
        KernelLibrary(Path(library))  # This raises if the file is not a library of kernels.
    try:
        return native.make_core(libraries)
    except Exception as error:
        names = ", ".join(Path(library).name for library in libraries)
        raise EngineError(
            f"OpenVINO {native.version()} refuses the library {names}: {native.clean_message(error)}",
            fix="build it with OpenVINO's adapter, for this release of OpenVINO and this machine.",
            details=str(error),
        ) from error


def _checked_device(devices: Sequence[str] | None, available: Sequence[str]) -> str:
    if devices is None:
        return "CPU"
    if isinstance(devices, str) or not devices:
        raise InputError(f"providers={devices!r}: a list of devices is needed.", fix='pass, for example, ["CPU"].')
    for name in devices:
        if name.partition(".")[0] not in {item.partition(".")[0] for item in available}:
            close = difflib.get_close_matches(name, available, n=1)
            raise InputError(
                f"OpenVINO finds no device {name!r} here. It finds: {', '.join(available)}.",
                fix=f"did you mean {close[0]!r}?" if close else f"use one of: {', '.join(available)}.",
            )
    return devices[0] if len(devices) == 1 else f"HETERO:{','.join(devices)}"


def _load_error(path: Path, error: Exception) -> OpbridgeError:
    message = native.clean_message(error)
    if re.search(r"external data|Invalid usage of method for externally stored data", message, re.I):
        return InputError(
            f"The external data of {path.name!r} is missing or truncated: {message}",
            fix="keep the model and its data file together in one folder; copy both again.",
            details=str(path),
        )
    return EngineError(
        f"OpenVINO {native.version()} refuses {path.name!r}: {message}",
        fix="run `opbridge diagnose` on the model to see what is not supported, or install a newer openvino.",
        details=str(error),
    )


class OpenVinoSession(Session):
    """A model in OpenVINO. It may be run from several threads at once; each has its own request."""

    def __init__(self, compiled: Any, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self._compiled = compiled
        self._requests = threading.local()
        # The compiled model has no inputs that nothing reads.
        names = {name: port for port in compiled.inputs for name in port.get_names()}
        self._ports = {spec.name: names[spec.name] for spec in inputs if spec.name in names}

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the model once; see :meth:`opbridge.engines.base.Session.run`."""
        arrays = checked_feeds(self.inputs, feeds)
        request = getattr(self._requests, "one", None)
        if request is None:
            request = self._requests.one = self._compiled.create_infer_request()
        try:
            for spec in self.inputs:
                if spec.name in self._ports:
                    request.set_tensor(self._ports[spec.name], _to_engine(spec, arrays[spec.name]))
            request.infer()
            results = [request.get_output_tensor(position) for position in range(len(self.outputs))]
            return {spec.name: _from_engine(spec, value) for spec, value in zip(self.outputs, results, strict=True)}
        except Exception as error:
            raise EngineError(
                f"OpenVINO failed while running the model: {native.clean_message(error)}",
                fix="check that the inputs' sizes and values are ones that the model takes; "
                "`opbridge verify` shows whether it also fails on inputs like those of the export.",
                details=str(error),
            ) from error

    def profiling_info(self) -> list[Any]:
        """The counters of this thread's runs, for a session that was loaded with ``profile``."""
        return list(self._requests.one.profiling_info)


def _to_engine(spec: TensorSpec, array: np.ndarray) -> Any:
    """A tensor that shares the array's memory; a type that NumPy does not have is passed as integers with its name."""
    runtime = native.runtime()
    if spec.dtype not in _FOREIGN:
        return runtime.Tensor(np.asarray(array, order="C"))
    bits = array.view(f"uint{8 * array.dtype.itemsize}")
    return runtime.Tensor(bits, runtime.Shape(list(array.shape)), getattr(runtime.Type, _FOREIGN[spec.dtype]))


def _from_engine(spec: TensorSpec, tensor: Any) -> np.ndarray:
    """The tensor's contents as an array that owns its memory."""
    if spec.dtype == "str":
        return np.array(tensor.str_data, dtype=object)
    array = np.array(tensor.data)
    # For a type that NumPy does not have, the array holds the bytes under another dtype.
    return array.view(numpy_dtype(spec.dtype)) if spec.dtype in _FOREIGN else array
