"""An ONNX model as an argument of the public verbs: a file or a model in memory, with example inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from opbridge.errors import InputError
from opbridge.onnx_model.read import model_of_proto, read_model

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["OnnxEntry", "load_onnx"]


@dataclasses.dataclass(frozen=True)
class OnnxEntry:
    """An ONNX model with its example inputs.

    Attributes:
        text: The file as the user wrote it; empty for a model in memory.
        model: The model.
        file: The absolute path of the file; None for a model in memory.
        examples: Example inputs by name; None if the user gave none.
    """

    text: str
    model: ir.Model
    file: Path | None = None
    examples: Mapping[str, np.ndarray] | None = None

    @property
    def opset(self) -> int | None:
        """The version of the standard domain that the model imports; None if it does not import the domain."""
        imports = self.model.opset_imports
        return imports.get("", imports.get("ai.onnx"))


def load_onnx(model: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> OnnxEntry:
    """Load an ONNX model from a file or from an object in memory.

    Args:
        model: A path, an ``onnx.ModelProto`` or an ``onnx_ir.Model``.
        args: Example inputs in order, as arrays.
        kwargs: Example inputs by name.

    Raises:
        InputError: The file is damaged or is not an ONNX model, or the examples do not fit.
    """
    import onnx

    if isinstance(model, str | Path):
        entry = OnnxEntry(str(model), read_model(model), Path(model).resolve())
    elif isinstance(model, onnx.ModelProto):
        entry = OnnxEntry("", model_of_proto(model))
    else:
        entry = OnnxEntry("", model)
    graph = entry.model.graph
    names = [str(value.name) for value in graph.inputs if value.name not in graph.initializers]
    given = {**dict(zip(names, args, strict=False)), **dict(kwargs or {})}
    unknown = next((name for name in given if name not in names), None)
    if len(args) > len(names) or unknown is not None or 0 < len(given) < len(names):
        problem = f"the model has no input {unknown!r}" if unknown is not None else f"it has {len(names)} inputs"
        count = len(args) + len(kwargs or {})
        raise InputError(
            f"The example inputs don't fit the model: {problem}, and {count} arrays were passed.",
            fix=f"pass one for each of {', '.join(names)}, or none.",
        )
    examples = {name: np.asarray(value) for name, value in given.items()}
    for value in graph.inputs:
        if value.name in examples:
            _check_example(value, examples[value.name])
    return dataclasses.replace(entry, examples=examples or None)


def _check_example(value: ir.Value, array: np.ndarray) -> None:
    if value.shape is None:
        return
    stated = [size if isinstance(size, int) else size.value for size in value.shape]
    fixed = [(size, actual) for size, actual in zip(stated, array.shape, strict=False) if isinstance(size, int)]
    if len(stated) != array.ndim or any(size != actual for size, actual in fixed):
        raise InputError(
            f"The example input {value.name!r} has the shape {list(array.shape)}, and the model takes {stated}.",
            fix="pass an array of that shape, or no examples at all.",
        )
