"""A model in TensorRT, on a GPU. It follows the documented interface and has not been run: see docs/engines.md."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from opbridge.engines.base import Session
from opbridge.engines.feeds import checked_feeds
from opbridge.engines.onnx_specs import check_threads, onnx_specs
from opbridge.engines.tensorrt_rtx import native
from opbridge.engines.tensorrt_rtx.building import build_engine, sibling_path
from opbridge.engines.tensorrt_rtx.native import Product
from opbridge.errors import EngineError, InputError
from opbridge.kernels.dtypes import numpy_dtype

if TYPE_CHECKING:
    from opbridge.engines.tensorrt_rtx.engine import TensorRTRTXEngine

__all__ = ["TensorRTSession", "load_session"]


def load_session(
    engine: TensorRTRTXEngine,
    path: Path,
    *,
    threads: int | None,
    providers: Sequence[str] | None,
    libraries: Sequence[Path],
) -> Session:
    """Implement :meth:`opbridge.engines.tensorrt_rtx.engine.TensorRTRTXEngine.load`."""
    product, version = engine.product, engine.version
    check_threads(threads)
    if providers is not None:
        raise InputError(f"{product.title} has no execution providers.", fix="leave them out.")
    inputs, outputs = onnx_specs(path)
    if libraries:
        raise EngineError(
            f"{product.title} takes kernels only as plugins, and {libraries[0].name} is not a plugin.",
            fix="compile the plugins from the sources in the bundle, and load them with the product's trtexec.",
        )
    idle = engine.not_run
    if idle is not None:
        raise EngineError(
            f"{product.title} {version} can't run {path.name!r}: this machine has no NVIDIA GPU.", fix=idle.fix
        )
    file = sibling_path(path, engine.name, ".engine")
    serialized = file.read_bytes() if file.is_file() else build_engine(product, path)
    return TensorRTSession(product, serialized, inputs, outputs)


class TensorRTSession(Session):
    """An engine file, ready to run. Runs of several threads are serialized.

    Args:
        product: The product.
        serialized: The engine file's contents.
        inputs: The model's inputs.
        outputs: The model's outputs.
    """

    def __init__(self, product: Product, serialized: bytes, inputs: Any, outputs: Any) -> None:
        from opbridge.engines.tensorrt_rtx import cuda

        trt = native.runtime(product)
        self.inputs, self.outputs = inputs, outputs
        self._cuda, self._title = cuda, product.title
        self._lock = threading.Lock()
        cuda.enter()
        self._logger = native.logger(product)
        self._runtime = trt.Runtime(self._logger)
        self._engine = self._runtime.deserialize_cuda_engine(serialized)
        self._context: Any = None if self._engine is None else self._engine.create_execution_context()
        if self._context is None:
            raise self._error("can't load the engine file", "export the model again on a machine with this version.")
        self._allocators = {spec.name: _allocator(trt, cuda) for spec in outputs}
        self._stream = cuda.Stream()

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the model once; see :meth:`opbridge.engines.base.Session.run`."""
        arrays = checked_feeds(self.inputs, feeds)
        with self._lock:
            self._cuda.enter()
            held = [self._bind(name, array) for name, array in arrays.items()]
            for name, allocator in self._allocators.items():
                self._context.set_output_allocator(name, allocator)
            if not self._context.execute_async_v3(self._stream.handle):
                raise self._error(
                    "failed while running the model", "check that the sizes are within the ranges built for."
                )
            self._stream.wait()
            del held
            return {spec.name: self._allocators[spec.name].read(spec.dtype) for spec in self.outputs}

    def _bind(self, name: str, array: np.ndarray) -> Any:
        memory = self._cuda.Memory(array.nbytes)
        memory.fill(array)
        if not self._context.set_input_shape(name, array.shape):
            raise self._error(
                f"takes no {name!r} of the sizes {list(array.shape)}",
                "keep dynamic dimensions within the ranges that the engine file was built for.",
            )
        self._context.set_tensor_address(name, memory.address)
        return memory

    def _error(self, what: str, fix: str) -> EngineError:
        reason = " ".join(self._logger.messages[-1].split()) if self._logger.messages else "it gives no reason"
        return EngineError(f"{self._title} {what}: {reason}", fix=fix, details="\n".join(self._logger.messages))


def _allocator(trt: Any, cuda: Any) -> Any:
    """The allocator for an output, whose size may be known only while the model runs."""

    class Allocator(trt.IOutputAllocator):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            trt.IOutputAllocator.__init__(self)
            self.memory: Any = None
            self.size = 0
            self.shape: tuple[int, ...] = ()

        def reallocate_output_async(self, name: str, memory: int, size: int, alignment: int, stream: int) -> int:
            if self.memory is None or size > self.size:
                self.memory, self.size = cuda.Memory(size), size
            return int(self.memory.address)

        def reallocate_output(self, name: str, memory: int, size: int, alignment: int) -> int:
            return self.reallocate_output_async(name, memory, size, alignment, 0)

        def notify_shape(self, name: str, shape: Any) -> None:
            self.shape = tuple(shape)

        def read(self, dtype: str) -> np.ndarray:
            array = np.empty(self.shape, numpy_dtype(dtype))
            self.memory.read(array)
            return array

    return Allocator()
