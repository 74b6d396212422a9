"""A model loaded in ncnn."""

from __future__ import annotations

import json
import math
import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from opbridge.engines.base import Session, TensorSpec
from opbridge.engines.feeds import checked_feeds
from opbridge.engines.ncnn.carried import NO_BATCH, array_of, mat_of
from opbridge.engines.ncnn.layers import Kernels, net_for_kernels, released
from opbridge.engines.ncnn.nets import fresh_net, load_net, set_options
from opbridge.engines.onnx_specs import check_threads
from opbridge.errors import EngineError, InputError
from opbridge.kernels.library import KernelLibrary

__all__ = ["SUFFIX", "NcnnSession", "load_session", "main_file"]

SUFFIX = ".ncnn.json"
"""The end of the name of a description, the file that is loaded."""


def main_file(model: Path) -> Path:
    """The path of the description of the ncnn model that belongs to an ONNX file."""
    # In a bundle for several engines, the ONNX file's name already contains this engine's name.
    return model.with_name(model.stem.removesuffix(".ncnn") + SUFFIX)


def load_session(path: Path, *, threads: int | None, libraries: Sequence[Path] = ()) -> NcnnSession:
    """Load the description of a converted model, with the net and the weights in the same folder.

    Raises:
        InputError: A file or a library is missing or damaged.
        EngineError: ncnn refuses the net, or a kernel is missing.
    """
    check_threads(threads)
    param, weights = (path.with_suffix(suffix) for suffix in (".param", ".bin"))
    try:
        description = json.loads(path.read_bytes())
        inputs, outputs = ([_Blob(item) for item in description[kind]] for kind in ("inputs", "outputs"))
        kernels, constants = description["kernels"], {}
        missing = next((file for file in (param, weights) if not file.is_file()), None)
        if path.with_suffix(".npz").is_file():
            with np.load(path.with_suffix(".npz")) as file:
                constants = dict(file)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path.name}, which describes the net's inputs and outputs, is missing or damaged: {error}.",
            fix="keep the files of the bundle together, or export it again.",
        ) from error
    if missing is not None:
        raise InputError(
            f"{missing.name} is missing in the folder of {path.name}.", fix="keep the files of the bundle together."
        )
    opened = [KernelLibrary(Path(library)) for library in libraries]
    count = threads or os.cpu_count() or 1
    loaded = Kernels(kernels, constants, opened, count) if kernels else None
    return NcnnSession(param, weights, inputs, outputs, loaded, count)


class _Blob:
    """An input or an output: the model's tensor and ncnn's blob."""

    def __init__(self, item: Mapping[str, Any]) -> None:
        self.spec = TensorSpec(item["name"], item["dtype"], tuple(item["shape"]))
        self.name: str | None = item["blob"]
        self.passed: str | None = item.get("input")
        self.batch: int = NO_BATCH if item["batch"] is None else item["batch"]


class NcnnSession(Session):
    """A net, which runs in one Python thread at a time. Its layers and kernels use ``threads`` threads each."""

    def __init__(
        self,
        param: Path,
        weights: Path,
        inputs: Sequence[_Blob],
        outputs: Sequence[_Blob],
        kernels: Kernels | None,
        threads: int,
    ) -> None:
        self.inputs = tuple(blob.spec for blob in inputs)
        self.outputs = tuple(blob.spec for blob in outputs)
        self._blobs = (tuple(inputs), tuple(outputs))
        self._kernels = kernels
        self._lock = threading.Lock()
        if kernels is None:
            self._net = fresh_net(threads)
        else:
            held = net_for_kernels(kernels)
            weakref.finalize(self, released, held).atexit = False
            self._net = held.net
            set_options(self._net, threads)
        if any(blob.name is not None for blob in outputs):
            load_net(self._net, param, weights)
        self._present = set(self._net.input_names())

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the net once; see :meth:`opbridge.engines.base.Session.run`."""
        arrays = checked_feeds(self.inputs, feeds)
        sizes = {
            name: size
            for spec in self.inputs
            for name, size in zip(spec.shape, arrays[spec.name].shape, strict=True)
            if isinstance(name, str)
        }
        with self._lock:
            return self._run(arrays, sizes)

    def _run(self, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
        extractor = self._net.create_extractor()
        given = [blob for blob in self._blobs[0] if blob.name in self._present]
        mats = [mat_of(arrays[blob.spec.name], f"Input {blob.spec.name!r}", blob.batch) for blob in given]
        for blob, mat in zip(given, mats, strict=True):
            extractor.input(blob.name, mat)
        results = {}
        for blob in self._blobs[1]:
            if blob.passed is not None:
                results[blob.spec.name] = arrays[blob.passed].copy()
                continue
            if self._kernels is not None:
                self._kernels.failure = None
            code, mat = extractor.extract(blob.name)
            if code:
                raise self._failed(blob, code)
            results[blob.spec.name] = _result(blob, mat, sizes)
        return results

    def _failed(self, blob: _Blob, code: int) -> EngineError:
        failure = self._kernels.failure if self._kernels is not None else None
        if failure is not None:
            return EngineError(f"A kernel failed in ncnn: {failure.message}", fix=failure.fix, details=failure.details)
        return EngineError(
            f"ncnn gave no output {blob.spec.name!r}: a layer before it failed, with code {code}.",
            fix="pass inputs of the sizes that the model was exported with, none of them 0.",
        )


def _result(blob: _Blob, mat: Any, sizes: Mapping[str, int]) -> np.ndarray:
    """The array of an output in the model's shape: ncnn has no rank 0, and drops a batch of 1 that pnnx missed."""
    spec = blob.spec
    array = array_of(mat, spec.dtype, blob.batch)
    expected = tuple(size if isinstance(size, int) else sizes.get(size) for size in spec.shape)
    known = tuple(size for size in expected if size is not None)
    if len(known) == len(expected) and array.size == math.prod(known):
        array = array.reshape(known)
    if array.ndim != len(expected) or any(
        size not in (None, got) for size, got in zip(expected, array.shape, strict=True)
    ):
        raise EngineError(
            f"ncnn gave output {spec.name!r} in shape {list(array.shape)}, where the model says {list(spec.shape)}: "
            "pnnx did not detect the batch axis correctly.",
            fix="export the model with a batch of 1 and fixed sizes.",
        )
    return array
