"""A torch program as an engine takes it that loads no ONNX."""

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
    """What an engine converts.

    Attributes:
        program: Decomposed as far as the engine's refusals made it needful; what else it holds, the engine takes.
        inputs: In order; the names are those of the bundle.
        outputs: Likewise.
        arguments: An example of each input, in order.
        kernels: The kernels of the custom operators that the program calls.
        libraries: The library that has them, built for the engine.
    """

    program: torch.export.ExportedProgram
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    arguments: tuple[Any, ...]
    kernels: tuple[KernelOperator, ...] = ()
    libraries: tuple[Path, ...] = ()
