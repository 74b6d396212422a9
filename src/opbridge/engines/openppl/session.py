"""A model in OpenPPL, through its Python binding."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from opbridge.engines.base import Session
from opbridge.engines.feeds import checked_feeds
from opbridge.engines.onnx_specs import check_threads, onnx_specs
from opbridge.engines.openppl import native
from opbridge.errors import EngineError, InputError
from opbridge.kernels.dtypes import numpy_dtype

__all__ = ["OpenPplSession", "load_session"]


def load_session(
    path: Path, *, threads: int | None, providers: Sequence[str] | None, libraries: Sequence[Path]
) -> OpenPplSession:
    """Implement :meth:`opbridge.engines.openppl.engine.OpenPplEngine.load`."""
    check_threads(threads)
    if providers is not None:
        raise InputError("OpenPPL has no execution providers.", fix="leave them out.")
    if libraries:
        raise InputError(
            f"OpenPPL loads no libraries of kernels, and got {libraries[0].name}.",
            fix="compile the operator into OpenPPL itself, or let its body run.",
        )
    inputs, outputs = onnx_specs(path)
    return OpenPplSession(path, native.binding(), inputs, outputs)


class OpenPplSession(Session):
    """A model in OpenPPL. Runs of several threads are serialized, since the model owns its tensors.

    Args:
        path: The model.
        binding: OpenPPL's Python binding.
        inputs: The model's inputs.
        outputs: The model's outputs.

    Raises:
        EngineError: OpenPPL refuses the model.
    """

    def __init__(self, path: Path, binding: native.Binding, inputs: Any, outputs: Any) -> None:
        self.inputs, self.outputs = inputs, outputs
        self._binding = binding
        self._lock = threading.Lock()
        nn = binding.nn
        engine = nn.x86.EngineFactory.Create(nn.x86.EngineOptions())
        builder = nn.onnx.RuntimeBuilderFactory.Create()
        if not engine or not builder:
            raise EngineError("OpenPPL made no engine.", fix="see its log; build it for this machine's processor.")
        refused = _refusing(path)
        self._check(builder.LoadModelFromFile(str(path)), "reading", refused)
        resources = nn.onnx.RuntimeBuilderResources()
        resources.engines = [engine]
        self._check(builder.SetResources(resources), "setting up", refused)
        self._check(builder.Preprocess(), "preparing", refused)
        self._runtime = builder.CreateRuntime()
        if not self._runtime:
            raise refused("OpenPPL made no runtime of it")
        # The runtime refers to these objects.
        self._keep = (engine, builder, resources)
        self._tensors = {
            tensor.GetName(): tensor
            for tensor in map(self._runtime.GetInputTensor, range(self._runtime.GetInputCount()))
        }

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the model once; see :meth:`opbridge.engines.base.Session.run`."""
        arrays = checked_feeds(self.inputs, feeds)
        with self._lock:
            for name, array in arrays.items():
                code = self._tensors[name].ConvertFromHost(array)
                self._check(code, f"taking the input {name!r}", _failing)
            self._check(self._runtime.Run(), "running the model", _failing)
            results = map(self._runtime.GetOutputTensor, range(self._runtime.GetOutputCount()))
            found = {tensor.GetName(): tensor for tensor in results}
            return {spec.name: _array(found[spec.name], spec.dtype) for spec in self.outputs}

    def _check(self, code: Any, doing: str, error: Callable[[str], EngineError]) -> None:
        if code != self._binding.common.RC_SUCCESS:
            raise error(f"{doing} gives {self._binding.say(code)!r}")


def _refusing(path: Path) -> Callable[[str], EngineError]:
    return lambda what: EngineError(
        f"OpenPPL refuses {path.name!r}: {what}.",
        fix="the last ERROR lines of its log name the operator; run `opbridge diagnose` on the model.",
    )


def _failing(what: str) -> EngineError:
    return EngineError(
        f"OpenPPL failed while running the model: {what}.",
        fix="check that the inputs' sizes and values are ones that the model takes; its log has details.",
    )


def _array(tensor: Any, dtype: str) -> np.ndarray:
    """A copy of a tensor's contents. OpenPPL gives a tensor without elements no shape."""
    data = tensor.ConvertToHost()
    if not data:
        shape = tuple(tensor.GetShape().GetDims())
        if 0 not in shape:
            raise _failing(f"the output {tensor.GetName()!r} of sizes {list(shape)} can't be read")
        return np.empty(shape, numpy_dtype(dtype))
    return np.array(data).astype(numpy_dtype(dtype), copy=False)
