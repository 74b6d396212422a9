"""The inputs and outputs of a captured program that become inputs and outputs of the ONNX model."""

from __future__ import annotations

import torch
from torch.export.graph_signature import InputKind, OutputKind, SymIntArgument, TensorArgument

__all__ = ["user_inputs", "user_outputs"]


def user_inputs(program: torch.export.ExportedProgram) -> list[str]:
    """The placeholders of the program that become inputs of the ONNX model, in order."""
    return [
        spec.arg.name
        for spec in program.graph_signature.input_specs
        if spec.kind is InputKind.USER_INPUT and isinstance(spec.arg, (TensorArgument, SymIntArgument))
    ]


def user_outputs(program: torch.export.ExportedProgram) -> list[int]:
    """The positions, among the user's flattened outputs, of those that become outputs of the ONNX model."""
    specs = [spec for spec in program.graph_signature.output_specs if spec.kind is OutputKind.USER_OUTPUT]
    return [i for i, spec in enumerate(specs) if isinstance(spec.arg, (TensorArgument, SymIntArgument))]
