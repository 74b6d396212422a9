"""A model loaded in TVM."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from opbridge.engines.base import Session, TensorSpec
from opbridge.engines.feeds import checked_feeds
from opbridge.engines.tvm import native
from opbridge.engines.tvm.kernels import Kernels
from opbridge.errors import EngineError
from opbridge.kernels.dtypes import numpy_dtype

__all__ = ["TvmSession"]


class TvmSession(Session):
    """A virtual machine of TVM, which runs in one thread at a time.

    Args:
        executable: The compiled model.
        inputs: The model's inputs, in order.
        outputs: The model's outputs, in order.
        kernels: The kernels that the model calls.
        threads: The number of threads of TVM's pool; None for TVM's default.
    """

    def __init__(
        self,
        executable: Any,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        kernels: Kernels,
        threads: int | None,
    ) -> None:
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        tvm = native.runtime()
        self._tensor = tvm.runtime.tensor
        self._kernels = kernels
        self._threads = threads
        self._configure = tvm.get_global_func("runtime.config_threadpool", allow_missing=True)
        self._lock = threading.Lock()
        self._main = tvm.relax.VirtualMachine(executable, tvm.cpu())["main"]

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the model once; see :meth:`opbridge.engines.base.Session.run`."""
        arrays = checked_feeds(self.inputs, feeds)
        tensors = [self._tensor(arrays[spec.name]) for spec in self.inputs]
        with self._lock, self._kernels:
            if self._threads is not None and self._configure is not None:
                # Each calling thread has its own pool.
                self._configure(0, self._threads)
            try:
                found = self._main(*tensors)
            except Exception as error:
                raise self._failed(error) from error
        results = [found] if len(self.outputs) == 1 else list(found)
        return {spec.name: _array(result, spec) for spec, result in zip(self.outputs, results, strict=True)}

    def _failed(self, error: Exception) -> EngineError:
        failure = self._kernels.failure
        if failure is not None:
            return EngineError(f"A kernel failed in TVM: {failure.message}", fix=failure.fix, details=failure.details)
        return EngineError(
            f"TVM {native.version()} failed while running: {native.one_line(error)}",
            fix="pass inputs of the sizes that the model was exported for.",
            details=str(error),
        )


def _array(result: Any, spec: TensorSpec) -> np.ndarray:
    """The array of a result; TVM returns a tensor of sizes as a shape object."""
    if hasattr(result, "numpy"):
        array: np.ndarray = result.numpy()
        return array
    return np.array(list(result), numpy_dtype(spec.dtype))
