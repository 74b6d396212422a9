"""Convert an ONNX model to ncnn's files: the net, its weights, and a description of inputs, outputs and kernels."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from opbridge.engines.base import TensorSpec
from opbridge.engines.ncnn import native
from opbridge.engines.ncnn.broadcasts import refuse_open_broadcasts
from opbridge.engines.ncnn.carried import CARRIED
from opbridge.engines.ncnn.kernel_nodes import named_in_param, stand_in
from opbridge.engines.ncnn.layers import KERNEL_LAYER
from opbridge.engines.ncnn.pnnx import Converted, run_pnnx
from opbridge.engines.ncnn.session import SUFFIX
from opbridge.engines.onnx_specs import check_model_file
from opbridge.engines.own import own_operators
from opbridge.errors import EngineError
from opbridge.onnx_model.read import read_model

if TYPE_CHECKING:
    import onnx

__all__ = ["NcnnModel", "convert_file", "convert_model", "write_files"]


@dataclasses.dataclass(frozen=True)
class NcnnModel:
    """A converted model.

    Attributes:
        param: The text of ncnn's parameter file.
        weights: The content of ncnn's weight file.
        description: JSON data: inputs and outputs with their blobs and batch axes, and the kernels.
        constants: Constant inputs of kernels, by the names in the description.
    """

    param: str
    weights: bytes
    description: dict[str, Any]
    constants: dict[str, np.ndarray]


def convert_file(path: Path, targets: Collection[str] = ()) -> NcnnModel:
    """Convert an ONNX file.

    Args:
        path: The model; external data is in the same folder.
        targets: ``"domain::Op"`` of the kernels that are loaded with it.

    Raises:
        InputError: The file is missing or not ONNX.
        EngineError: pnnx or ncnn refuses the model.
    """
    import onnx_ir as ir

    check_model_file(path)
    model = ir.serde.serialize_model(ir.external_data.load_to_model(read_model(path)))
    return convert_model(model, targets)


def convert_model(model: onnx.ModelProto, targets: Collection[str] = ()) -> NcnnModel:
    """Convert an ONNX model without changing it; see :func:`convert_file`."""
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    _refuse_unknown_domains(copy, targets)
    passed = _passed_on(copy)
    refuse_open_broadcasts(copy)
    kernels, constants = stand_in(copy, {*targets, *own_operators("ncnn")})
    _fit_types(copy)
    # pnnx crashes on a model that computes nothing.
    converted = run_pnnx(copy) if copy.graph.output else _NOTHING
    converted = dataclasses.replace(converted, param=named_in_param(converted.param))
    _check_layers(converted)
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in weights]
    return NcnnModel(
        converted.param,
        converted.weights,
        {
            "inputs": _blobs(inputs, converted.inputs, [value.name for value in copy.graph.input]),
            "outputs": [
                {**item, "input": passed.get(item["name"])}
                for item in _blobs(
                    list(model.graph.output), converted.outputs, [value.name for value in copy.graph.output]
                )
            ],
            "kernels": kernels,
        },
        constants,
    )


def write_files(model: NcnnModel, stem: Path) -> tuple[Path, ...]:
    """Write the model's files; the first one, the description, is the file to load."""
    description = stem.with_name(stem.name + SUFFIX)
    param, weights = stem.with_name(stem.name + ".ncnn.param"), stem.with_name(stem.name + ".ncnn.bin")
    description.write_text(json.dumps(model.description, indent=1, sort_keys=True) + "\n")
    param.write_text(model.param)
    weights.write_bytes(model.weights)
    if not model.constants:
        return description, param, weights
    constants = stem.with_name(stem.name + ".ncnn.npz")
    np.savez(constants, **model.constants)  # type: ignore[arg-type]
    return description, param, weights, constants


_NOTHING = Converted("7767517\n0 0\n", b"", (), ())


def _passed_on(model: onnx.ModelProto) -> dict[str, str]:
    """Remove, in place, outputs that are inputs and unused inputs; returns which output is which input."""
    source = {node.output[0]: node.input[0] for node in model.graph.node if node.op_type == "Identity"}
    inputs = {value.name for value in model.graph.input}
    passed = {}
    for value in model.graph.output:
        name = value.name
        while name in source:
            name = source[name]
        if name in inputs:
            passed[value.name] = name
    computed = [value for value in model.graph.output if value.name not in passed]
    used = {value.name for value in computed}
    nodes: list[onnx.NodeProto] = []
    for node in reversed(model.graph.node):
        # The inputs of a node do not include the outer values that its subgraph uses.
        if used.intersection(node.output) or any(attribute.HasField("g") for attribute in node.attribute):
            nodes.insert(0, node)
            used.update(node.input)
    used -= {tensor.name for tensor in model.graph.initializer}
    kept = [value for value in model.graph.input if value.name in used]
    for field, values in ((model.graph.output, computed), (model.graph.node, nodes), (model.graph.input, kept)):
        copies = [type(value).FromString(value.SerializeToString()) for value in values]
        del field[:]
        field.extend(copies)
    return passed


def _fit_types(model: onnx.ModelProto) -> None:
    """Give inputs of rank 0, which pnnx does not read, one axis, in place; refuse dtypes that ncnn does not hold."""
    for value in (*model.graph.input, *model.graph.output):
        if value.type.tensor_type.elem_type and _spec(value).dtype not in CARRIED:
            raise EngineError(
                f"{value.name!r} is {_spec(value).dtype}, and ncnn computes in float32.", fix="convert it in the model."
            )
    for value in model.graph.input:
        if value.type.tensor_type.HasField("shape") and not value.type.tensor_type.shape.dim:
            value.type.tensor_type.shape.dim.add().dim_value = 1


def _refuse_unknown_domains(model: onnx.ModelProto, targets: Collection[str]) -> None:
    """Raise EngineError for operators outside the standard, on which pnnx crashes."""
    for node in model.graph.node:
        if node.domain not in ("", "ai.onnx") and f"{node.domain}::{node.op_type}" not in targets:
            raise EngineError(
                f"ncnn has no operator {node.domain}::{node.op_type}, which node {node.name!r} is.",
                fix="export the model with `opbridge export --engine ncnn`, and load the library of its kernels.",
            )


def _check_layers(converted: Converted) -> None:
    unknown = [layer for layer in converted.unknown_layers if layer.kind != KERNEL_LAYER]
    if unknown:
        listed = ", ".join(dict.fromkeys(f"{layer.kind} ({layer.name!r})" for layer in unknown))
        raise EngineError(
            f"ncnn {native.version()} has no layer {listed}, which pnnx leaves in the net.",
            fix="run `opbridge diagnose --engine ncnn` on the model to see which operators these are.",
        )


def _blobs(
    values: Sequence[Any], blobs: Sequence[tuple[str, int | None]], converted: Sequence[str]
) -> list[dict[str, Any]]:
    """The blobs of the model's converted inputs or outputs; the others have none."""
    if len(converted) != len(blobs):
        raise EngineError(
            f"pnnx made a net with {len(blobs)} of these inputs or outputs: {', '.join(converted)}.",
            fix="remove repeated outputs and constant outputs from the model.",
        )
    named = dict(zip(converted, blobs, strict=True))
    return [
        {**_spec(value).to_dict(), **dict(zip(("blob", "batch"), named.get(value.name, (None, None)), strict=True))}
        for value in values
    ]


def _spec(value: Any) -> TensorSpec:
    import onnx

    kind = value.type.tensor_type
    string = kind.elem_type == onnx.TensorProto.STRING
    dtype = "str" if string else str(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type).name)
    shape = tuple(
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or f"{value.name}.{axis}"
        for axis, dim in enumerate(kind.shape.dim)
    )
    return TensorSpec(value.name, dtype, shape)
