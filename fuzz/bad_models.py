"""What may be wrong with an ONNX model: its weights, its graphs, its functions, its names."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
from bad_content import BINARY, Change
from onnx import TensorProto, helper, numpy_helper
from valid_files import model

__all__ = ["MODELS"]


def _external(**places: str) -> Change:
    def change(path: Path, chance: random.Random) -> None:
        changed = model()
        weight = changed.graph.initializer[0]
        weight.ClearField("raw_data")
        weight.data_location = TensorProto.EXTERNAL
        for key, value in places.items():
            weight.external_data.add(key=key, value=value)
        os.mkfifo(path.with_name("pipe"))
        path.write_bytes(changed.SerializeToString())

    return change


def _model(**options: Any) -> Change:
    return lambda path, chance: path.write_bytes(model(**options).SerializeToString())


def _cycle(path: Path, chance: random.Random) -> None:
    changed = model()
    changed.graph.node[0].input[0] = "y"
    path.write_bytes(changed.SerializeToString())


def _deep_graph(path: Path, chance: random.Random) -> None:
    changed = model()
    condition = numpy_helper.from_array(np.array(True), "c")
    result = helper.make_empty_tensor_value_info("z")
    graph = other = helper.make_graph([helper.make_node("Identity", ["a"], ["z"])], "s", [], [result])
    for _ in range(24):
        node = helper.make_node("If", ["c"], ["z"], then_branch=graph, else_branch=other)
        graph = helper.make_graph([node], "s", [], [result])
    changed.graph.initializer.append(condition)
    changed.graph.node.append(helper.make_node("If", ["c"], ["t"], then_branch=graph, else_branch=other))
    path.write_bytes(changed.SerializeToString())


def _own_function(path: Path, chance: random.Random) -> None:
    changed = model()
    changed.functions[0].node[0].domain = "fuzz"
    changed.functions[0].node[0].op_type = "Twice"
    del changed.functions[0].node[0].input[1:]
    path.write_bytes(changed.SerializeToString())


def _many_calls(path: Path, chance: random.Random) -> None:
    """Functions that each call the one before twice: a small file of a huge model."""
    changed = model()
    for number in range(40):
        inner = f"Twice{number - 1}" if number else "Twice"
        nodes = [helper.make_node(inner, [a], [b], domain="fuzz") for a, b in (("p", "m"), ("m", "q"))]
        opsets = [helper.make_opsetid("fuzz", 1)]
        changed.functions.append(helper.make_function("fuzz", f"Twice{number}", ["p"], ["q"], nodes, opsets))
    changed.graph.node[2].op_type = "Twice39"
    path.write_bytes(changed.SerializeToString())


def _odd_names(path: Path, chance: random.Random) -> None:
    """Names that control a terminal, hide text, and begin a line like a fix of opbridge."""
    changed = model()
    changed.graph.node[1].op_type = changed.graph.node[1].name = "\x1b]0;x\x07\u202e\u200b\nfix: run this\r"
    path.write_bytes(changed.SerializeToString())


MODELS: dict[str, Change] = {
    **BINARY,
    "5 bytes": _model(content=b"12345"),
    "no bytes": _model(content=b""),
    "a negative dimension": _model(dims=(-4,)),
    "huge dimensions": _model(dims=(2**40, 2**40)),
    "other dimensions": _model(dims=(5,)),
    "a negative size": _model(shape=[-1, 4]),
    "opset 0": _model(opset=0),
    "opset 999": _model(opset=999),
    "IR version 999": _model(ir_version=999),
    "IR version -1": _model(ir_version=-1),
    "a cycle": _cycle,
    "graphs in graphs": _deep_graph,
    "a function that calls itself": _own_function,
    "calls of calls": _many_calls,
    "odd names": _odd_names,
    "weights elsewhere": _external(location="../../../etc/hosts"),
    "weights at the root": _external(location="/etc/hosts"),
    "weights in a pipe": _external(location="pipe"),
    "weights missing": _external(location="gone"),
    "weights before the file": _external(location="x.npy", offset="-5"),
    "weights beyond the file": _external(location="x.npy", offset="99999999999999999999"),
    "weights of no size": _external(location="x.npy", length="five"),
    "weights without a place": _external(),
}
