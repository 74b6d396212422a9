"""A program in ExecuTorch's runtime, through its Python interface, which works on torch tensors."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from opbridge.engines.base import Session
from opbridge.engines.executorch import native
from opbridge.engines.executorch.libraries import load_libraries, take_error
from opbridge.engines.feeds import checked_feeds
from opbridge.engines.onnx_specs import check_model_file, check_threads
from opbridge.engines.specs import read_specs
from opbridge.errors import EngineError, InputError, first_line
from opbridge.kernels.dtypes import is_native, numpy_dtype

__all__ = ["ExecuTorchSession", "load_session"]


def load_session(
    path: Path, *, threads: int | None, providers: Sequence[str] | None, libraries: Sequence[Path]
) -> ExecuTorchSession:
    """Implement :meth:`opbridge.engines.executorch.engine.ExecuTorchEngine.load`."""
    check_model_file(path)
    check_threads(threads)
    if providers is not None:
        raise InputError("ExecuTorch has no execution providers.", fix="leave them out.")
    load_libraries(libraries)
    inputs, outputs = read_specs(path.with_suffix(".json"))
    try:
        loaded = native.load_method(path)
    except (RuntimeError, ValueError) as error:
        raise EngineError(
            f"ExecuTorch {native.package_version()} refuses {path.name!r}: {first_line(error)}",
            fix="export it again with this version of executorch.",
            details=str(error),
        ) from error
    return ExecuTorchSession(loaded, inputs, outputs)


class ExecuTorchSession(Session):
    """A program in the runtime. Runs of several threads are serialized, since the program has one memory.

    Args:
        loaded: The program and its method.
        inputs: The program's inputs.
        outputs: The program's outputs.
    """

    def __init__(self, loaded: tuple[Any, Any], inputs: Any, outputs: Any) -> None:
        self.inputs, self.outputs = inputs, outputs
        self._program, self._method = loaded
        self._lock = threading.Lock()

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the program once; see :meth:`opbridge.engines.base.Session.run`."""
        arrays = checked_feeds(self.inputs, feeds)
        tensors = [_to_torch(arrays[spec.name], spec.dtype) for spec in self.inputs]
        with self._lock:
            try:
                results = self._method.execute(tensors)
            except (RuntimeError, ValueError) as error:
                message = take_error()
                if message:
                    raise EngineError(message, fix="pass what the operator takes, or correct the kernel.") from error
                raise EngineError(
                    f"ExecuTorch failed while running the program: {first_line(error)}",
                    fix="check that the program's memory was planned for the inputs' sizes: a dynamic "
                    "dimension without an upper bound is limited to twice the example's size.",
                    details=str(error),
                ) from error
            # The results are in the program's memory, which the next run overwrites.
            return {spec.name: _to_numpy(value, spec.dtype) for spec, value in zip(self.outputs, results, strict=True)}


def _to_torch(array: np.ndarray, dtype: str) -> Any:
    import torch

    if is_native(dtype):
        return torch.from_numpy(np.require(array, requirements=["C", "W"]))
    bits = np.require(array.view(f"int{8 * array.dtype.itemsize}"), requirements=["C", "W"])
    return torch.from_numpy(bits).view(getattr(torch, dtype))


def _to_numpy(value: Any, dtype: str) -> np.ndarray:
    import torch

    if not isinstance(value, torch.Tensor):
        return np.asarray(value, numpy_dtype(dtype))
    if is_native(dtype):
        return np.array(value.numpy())
    bits = value.view(getattr(torch, f"int{8 * value.element_size()}")).numpy()
    return np.array(bits).view(numpy_dtype(dtype))
