"""Models of a few nodes, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
from onnx import TensorProto, helper

Typed = tuple[str, Sequence[int | str | None]]

FLOAT, DOUBLE, BFLOAT16, FLOAT16 = "FLOAT", "DOUBLE", "BFLOAT16", "FLOAT16"


def value_info(name: str, typed: Typed) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, getattr(TensorProto, typed[0]), typed[1])


def make_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, Typed],
    outputs: dict[str, Typed],
    *,
    opset: int = 20,
    functions: Sequence[onnx.FunctionProto] = (),
    initializers: Sequence[onnx.TensorProto] = (),
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "test",
        [value_info(name, typed) for name, typed in inputs.items()],
        [value_info(name, typed) for name, typed in outputs.items()],
        list(initializers),
    )
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10, functions=list(functions))


def one_node(
    op_type: str,
    inputs: Sequence[Typed | None],
    outputs: Sequence[Typed],
    *,
    opset: int = 20,
    domain: str = "",
    functions: Sequence[onnx.FunctionProto] = (),
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one node; an input None is one that is left out."""
    names = ["" if typed is None else f"x{position}" for position, typed in enumerate(inputs)]
    results = [f"y{position}" for position in range(len(outputs))]
    return make_model(
        [helper.make_node(op_type, names, results, name="the_node", domain=domain, **attributes)],
        {name: typed for name, typed in zip(names, inputs, strict=True) if typed is not None},
        dict(zip(results, outputs, strict=True)),
        opset=opset,
        functions=functions,
        domains=[domain] if domain else [],
    )


def to_ir(model: onnx.ModelProto) -> ir.Model:
    return ir.from_proto(model)


def save(model: onnx.ModelProto | ir.Model, path: Path) -> Path:
    proto = model if isinstance(model, onnx.ModelProto) else ir.to_proto(model)
    path.write_bytes(proto.SerializeToString())
    return path
