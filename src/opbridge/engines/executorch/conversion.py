"""Convert a torch program to a program file of ExecuTorch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from opbridge.engines.executorch import native
from opbridge.engines.executorch.out_variants import define_out_variants, kernel_name
from opbridge.engines.specs import write_specs
from opbridge.errors import EngineError, first_line
from opbridge.torch_graph.silence import silenced

if TYPE_CHECKING:
    from opbridge.engines.torch_program import TorchProgram

__all__ = ["LARGEST", "MODEL", "largest_size", "write_program"]

MODEL = "model.executorch.pte"
LARGEST = 16
"""A dynamic dimension without an upper bound gets twice the example's size as its bound, or this number if larger."""


def write_program(program: TorchProgram, folder: Path, version: str) -> str:
    """Compile a program, and write it with its description.

    Args:
        program: The program.
        folder: The folder to write to.
        version: The version of ExecuTorch.

    Returns:
        The name of the program file.

    Raises:
        EngineError: ExecuTorch can't compile it, or the runtime does not have kernels that the program calls.
    """
    targets = [operator.target for operator in program.kernels]
    define_out_variants(targets)
    try:
        with silenced(), torch.no_grad():
            compiled = native.lowered(_bounded(program.program))
    except Exception as error:
        raise EngineError(
            f"ExecuTorch {version} can't compile the program: {first_line(error)}",
            fix="if it is about a dynamic dimension, set an upper bound for it, or export with fixed sizes.",
            details=str(error),
        ) from error
    own = {kernel_name(target) for target in targets}
    lacking = [name for name in compiled.operators if name not in native.kernels() and name not in own]
    if lacking:
        raise EngineError(
            f"ExecuTorch {version} has no kernel for {', '.join(lacking)}, which the compiled program calls.",
            fix="give the operator that becomes it a decomposition: @opbridge.decomposition.",
        )
    (folder / MODEL).write_bytes(compiled.buffer)
    write_specs(folder / f"{Path(MODEL).stem}.json", program.inputs, program.outputs)
    return MODEL


def largest_size(example: int) -> int:
    """The upper bound of a dynamic dimension whose example has this size."""
    return max(2 * example, LARGEST)


class _Flat(torch.nn.Module):
    """A program as a module of its inputs' leaves."""

    def __init__(self, program: torch.export.ExportedProgram, spec: Any) -> None:
        super().__init__()
        self._inner = program.module()
        self._spec = spec

    def forward(self, *leaves: Any) -> Any:
        args, kwargs = pytree.tree_unflatten(list(leaves), self._spec)
        return self._inner(*args, **kwargs)


def _bounded(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The program, captured again with an upper bound for each dynamic dimension that has none."""
    if all(str(limits.upper).isdigit() for limits in program.range_constraints.values()):
        return program
    leaves, spec = pytree.tree_flatten(program.example_inputs)
    values = {node.name: node.meta.get("val") for node in program.graph.find_nodes(op="placeholder")}
    fakes = [values.get(name) for name in program.graph_signature.user_inputs if isinstance(name, str)]
    shapes = tuple(map(_sizes, leaves, fakes)) if len(fakes) == len(leaves) else None
    if shapes is None:
        raise ValueError("the example's inputs are not those of the program")
    return torch.export.export(_Flat(program, spec), tuple(leaves), dynamic_shapes={"leaves": shapes}, strict=False)


def _sizes(example: Any, fake: Any) -> Any:
    if not isinstance(example, torch.Tensor) or not isinstance(fake, torch.Tensor):
        return None
    return {
        axis: torch.export.Dim.AUTO(max=largest_size(int(example.shape[axis])))
        for axis, size in enumerate(fake.shape)
        if not isinstance(size, int)
    }
