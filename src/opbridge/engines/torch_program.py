"""The torch program that an engine converts if it does not load ONNX."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opbridge.engines.base import TensorSpec

if TYPE_CHECKING:
    import torch

    from opbridge.kernels.library import KernelOperator

__all__ = ["TorchProgram"]


@dataclasses.dataclass(frozen=True)
class TorchProgram:
    """A torch program and all that an engine needs to convert it.

    Attributes:
        program: The program, in which every operator that the engine refused is decomposed.
        inputs: The inputs in order, with the names of the bundle.
        outputs: The outputs in order, with the names of the bundle.
        arguments: An example of each input, in order.
        kernels: The kernels of the custom operators that the program calls.
        libraries: The library with these kernels, built for the engine.
    """

    program: torch.export.ExportedProgram
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    arguments: tuple[Any, ...]
    kernels: tuple[KernelOperator, ...] = ()
    libraries: tuple[Path, ...] = ()
