"""Kernels as layers of ncnn, which call the C ABI library from Python."""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from opbridge.engines.library_kernels import library_kernel
from opbridge.engines.ncnn import native
from opbridge.engines.ncnn.carried import array_of, mat_of
from opbridge.engines.own import own_operators
from opbridge.errors import EngineError, OpbridgeError
from opbridge.kernels.library import KernelLibrary

__all__ = ["KERNEL_LAYER", "KernelNet", "Kernels", "net_for_kernels", "released"]

KERNEL_LAYER = "opbridge.kernel"
"""The type of all layers that run kernels; parameter 0 is the position in the description."""


class Kernels:
    """The kernels of one net.

    Attributes:
        failure: The error of the last kernel that failed, since ncnn itself reports a number only.

    Args:
        descriptions: The description of each layer, from ``kernel_nodes.py``.
        constants: The constant inputs, by the name in the description.
        libraries: The libraries with the kernels.
        threads: The number of threads of each kernel.

    Raises:
        EngineError: No library has one of the kernels.
    """

    def __init__(
        self,
        descriptions: Sequence[Mapping[str, Any]],
        constants: Mapping[str, np.ndarray],
        libraries: Sequence[KernelLibrary],
        threads: int,
    ) -> None:
        self.failure: OpbridgeError | None = None
        self._nodes = [_KernelNode(description, constants, libraries, threads) for description in descriptions]

    def run(self, position: int, mats: Sequence[Any]) -> list[Any] | None:
        """The flat results of a kernel for flat inputs; None if it failed, with the error in ``failure``."""
        try:
            return self._nodes[position].run(mats)
        except OpbridgeError as error:
            self.failure = error
        # An exception must not pass through the frames of ncnn.
        except Exception as error:
            self.failure = EngineError(f"{type(error).__name__}: {error}", fix="correct the kernel.")
        return None


class _KernelNode:
    """A node that is computed by a kernel of a library or by an operator of this engine's folder."""

    def __init__(
        self,
        description: Mapping[str, Any],
        constants: Mapping[str, np.ndarray],
        libraries: Sequence[KernelLibrary],
        threads: int,
    ) -> None:
        self._target = description["target"]
        self._inputs, self._outputs = description["inputs"], description["outputs"]
        self._constants = [
            constants[item["constant"]] if item is not None and "constant" in item else None for item in self._inputs
        ]
        own = own_operators("ncnn").get(self._target)
        if own is not None:
            self._compute = own.made(description["attributes"], self._constants, threads)
        else:
            self._compute = library_kernel("ncnn", description, libraries, threads)

    def run(self, mats: Sequence[Any]) -> list[Any]:
        given = iter(mats)
        arrays = [
            constant if item is None or constant is not None else _unflattened(next(given), item)
            for item, constant in zip(self._inputs, self._constants, strict=True)
        ]
        kept = [
            (item, result)
            for item, result in zip(self._outputs, self._compute(arrays), strict=False)
            if item is not None
        ]
        for item, result in kept:
            if result.dtype.name != item["dtype"] or not _fits(result.shape, item["shape"]):
                raise EngineError(
                    f"{self._target} gave {result.dtype.name}{list(result.shape)} in ncnn, where the model says "
                    f"{item['dtype']}{item['shape']}.",
                    fix="make the kernel's shape function and the operator's body agree.",
                )
        return [mat_of(result.reshape(-1), f"A result of {self._target}") for _, result in kept]


def _unflattened(mat: Any, item: Mapping[str, Any]) -> np.ndarray:
    return array_of(mat, item["dtype"]).reshape(item["shape"])


def _fits(shape: Sequence[int], sizes: Sequence[int]) -> bool:
    return len(shape) == len(sizes) and all(want in (-1, got) for got, want in zip(shape, sizes, strict=True))


# The binding has a table of ten layer creators, which are never freed, so nets with a creator are reused.
_LARGEST_POOL = 10
_numbers = itertools.count(1)
_free: list[Any] = []
_kernels: dict[int, Kernels] = {}


class KernelNet:
    """A net with the registered layer type for kernels, and the layers that it created."""

    def __init__(self) -> None:
        self.kernels: Kernels | None = None
        self.layers: list[Any] = []
        self.net = native.runtime().Net()
        failed = self.net.register_custom_layer(KERNEL_LAYER, self._create, self._destroy)
        if failed:
            raise EngineError("ncnn does not register a layer for kernels.", fix="install another version of ncnn.")

    def _create(self) -> Any:
        layer = _layer_class()(self)
        self.layers.append(layer)
        return layer

    def _destroy(self, layer: Any) -> None:
        self.layers = [other for other in self.layers if other is not layer]


def net_for_kernels(kernels: Kernels) -> KernelNet:
    """A net that runs kernels.

    Raises:
        EngineError: The process already has as many such nets as the binding allows.
    """
    if _free:
        made = _free.pop()
    elif next(_numbers) <= _LARGEST_POOL:
        made = KernelNet()
    else:
        raise EngineError(
            f"ncnn's Python binding allows {_LARGEST_POOL} nets with kernels at once in a process.",
            fix="drop sessions that are no longer used, or use another process.",
        )
    made.kernels = kernels
    return made


def released(made: KernelNet) -> None:
    """Release a net for another session."""
    made.net.clear()
    made.kernels = None
    _free.append(made)


@functools.cache
def _layer_class() -> Any:
    ncnn = native.runtime()

    class KernelLayer(ncnn.Layer):  # type: ignore[misc, name-defined]
        """Runs a kernel on flat tensors."""

        def __init__(self, owner: KernelNet) -> None:
            ncnn.Layer.__init__(self)
            self.one_blob_only = False
            self.support_inplace = False
            self.support_packing = False
            self._owner = weakref.ref(owner)
            self._position = -1

        def load_param(self, parameters: Any) -> int:
            """Read the position of the kernel."""
            self._position = parameters.get(0, -1)
            return 0

        def forward(self, bottoms: Any, tops: Any, option: Any) -> int:
            """Run the kernel; ncnn treats a result other than 0 as a failure."""
            owner = self._owner()
            if owner is None or owner.kernels is None:
                return -1
            results = owner.kernels.run(self._position, list(bottoms))
            if results is None:
                return -1
            for top, result in zip(tops, results, strict=True):
                top.clone_from(result, option.blob_allocator)
            return 0

    return KernelLayer
