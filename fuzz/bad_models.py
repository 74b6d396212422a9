"""What may be wrong with an ONNX model: its weights, its graphs, its functions, its names."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from bad_content import BINARY, Change
from forked import make_socket
from onnx import TensorProto, helper, numpy_helper
from valid_files import model

__all__ = ["CAN_BE_VALID", "MODELS"]


def _external(prepare: Callable[[Path], object] = lambda folder: None, **places: str) -> Change:
    """A weight in another file, which ``prepare`` makes in the folder of the model."""

    def change(path: Path, chance: random.Random) -> None:
        changed = model()
        _move(changed.graph.initializer[0], **places)
        prepare(path.parent)
        path.write_bytes(changed.SerializeToString())

    return change


def _move(weight: TensorProto, **places: str) -> None:
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in places.items():
        weight.external_data.add(key=key, value=value)


def _external_constant(path: Path, chance: random.Random) -> None:
    """Weights in another file that are attributes of nodes, in the graph and in a function."""
    changed = model()
    weight = helper.make_tensor("v", TensorProto.FLOAT, [4], [0.0] * 4)
    weight.ClearField("float_data")
    _move(weight, location="../../../etc/hosts")
    for nodes in (changed.graph.node, changed.functions[0].node):
        nodes.append(helper.make_node("Constant", [], ["k"], value=weight))
    path.write_bytes(changed.SerializeToString())


def _overlapping(path: Path, chance: random.Random) -> None:
    """A thousand weights that are the same bytes of one file: 16 GiB, if each is copied."""
    changed = model()
    weights = path.with_name("weights")
    weights.touch()
    os.truncate(weights, 1 << 24)
    for number in range(1000):
        weight = changed.graph.initializer.add(name=f"w{number}", data_type=TensorProto.FLOAT, dims=[1 << 22])
        _move(weight, location="weights", offset="0", length=str(1 << 24))
    path.write_bytes(changed.SerializeToString())


def _many_nodes(path: Path, chance: random.Random) -> None:
    changed = model()
    values = ["y", *(f"z{number}" for number in range(20_000))]
    changed.graph.node.extend(helper.make_node("Relu", [a], [b]) for a, b in itertools.pairwise(values))
    path.write_bytes(changed.SerializeToString())


def _many_reads(path: Path, chance: random.Random) -> None:
    """A node that reads 20,000 values, the last of which nothing produces."""
    changed = model()
    values = [f"z{number}" for number in range(20_000)]
    changed.graph.node.extend(helper.make_node("Relu", ["y"], [value]) for value in values[1:])
    changed.graph.node.append(helper.make_node("Sum", values, ["s"]))
    path.write_bytes(changed.SerializeToString())


def _long_cycle(path: Path, chance: random.Random) -> None:
    _many_nodes(path, chance)
    changed = onnx.load(path)
    changed.graph.node[0].input[0] = changed.graph.node[-1].output[0]
    path.write_bytes(changed.SerializeToString())


def _long_names(path: Path, chance: random.Random) -> None:
    """Names of a megabyte, one of which has a typing error."""
    changed = model()
    changed.graph.node[0].output[0] = changed.graph.node[0].name = "n" * (1 << 20)
    changed.graph.node[1].input[0] = "n" * (1 << 20) + "m"
    path.write_bytes(changed.SerializeToString())


def _mutual_functions(path: Path, chance: random.Random) -> None:
    changed = model()
    body = [helper.make_node("Twice", ["p"], ["q"], domain="fuzz")]
    changed.functions.append(helper.make_function("fuzz", "Other", ["p"], ["q"], body, changed.opset_import))
    changed.functions[0].node[0].CopyFrom(helper.make_node("Other", ["p"], ["q"], domain="fuzz"))
    changed.functions[0].opset_import.append(helper.make_opsetid("fuzz", 1))
    path.write_bytes(changed.SerializeToString())


def _deep_calls(path: Path, chance: random.Random) -> None:
    """A chain of 3,000 functions, each of which calls the one before."""
    changed = model()
    for number in range(3000):
        body = [helper.make_node(f"F{number - 1}" if number else "Twice", ["p"], ["q"], domain="fuzz")]
        opsets = [helper.make_opsetid("fuzz", 1)]
        changed.functions.append(helper.make_function("fuzz", f"F{number}", ["p"], ["q"], body, opsets))
    changed.graph.node[2].op_type = "F2999"
    path.write_bytes(changed.SerializeToString())


def _two_functions(path: Path, chance: random.Random) -> None:
    """Two functions of one name, and one that has the name of an operator of ONNX."""
    changed = model()
    changed.functions.append(changed.functions[0])
    relu = [helper.make_node("Relu", ["p"], ["q"])]
    changed.functions.append(helper.make_function("", "LeakyRelu", ["p"], ["q"], relu, changed.opset_import[:1]))
    path.write_bytes(changed.SerializeToString())


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
    "functions that call each other": _mutual_functions,
    "a chain of functions": _deep_calls,
    "two functions of one name": _two_functions,
    "many nodes": _many_nodes,
    "many reads": _many_reads,
    "a long cycle": _long_cycle,
    "long names": _long_names,
    "weights elsewhere": _external(location="../../../etc/hosts"),
    "weights of a constant elsewhere": _external_constant,
    "weights at the root": _external(location="/etc/hosts"),
    "weights on a drive": _external(location="C:\\weights"),
    "weights in a pipe": _external(lambda folder: os.mkfifo(folder / "pipe"), location="pipe"),
    "weights in a device": _external(lambda folder: (folder / "zero").symlink_to("/dev/zero"), location="zero"),
    "weights in a socket": _external(lambda folder: make_socket(folder / "socket"), location="socket"),
    "weights in a folder": _external(location="swept"),
    "weights in the model": _external(location="m.onnx", length="16"),
    "weights behind a link": _external(lambda folder: (folder / "etc").symlink_to("/etc"), location="etc/hosts"),
    "weights behind a link to itself": _external(lambda folder: (folder / "l").symlink_to("l"), location="l/w"),
    "weights unreadable": _external(lambda folder: (folder / "w").touch(0), location="w", length="16"),
    "weights missing": _external(location="gone"),
    "weights with a NUL": _external(location="x.npy\0"),
    "weights of a long name": _external(location="w" * 100_000),
    "weights before the file": _external(location="x.npy", offset="-5"),
    "weights beyond the file": _external(location="x.npy", offset="99999999999999999999"),
    "weights beyond 64 bits": _external(location="x.npy", offset=str(2**63 - 8), length="16"),
    "weights that begin in a page": _external(location="x.npy", offset="3", length="16"),
    "weights of no size": _external(location="x.npy", length="five"),
    "weights of a negative size": _external(location="x.npy", length="-16"),
    "weights of a huge size": _external(location="x.npy", length=str(1 << 60)),
    "weights that overlap": _overlapping,
    "weights without a place": _external(),
}

CAN_BE_VALID = {
    "graphs in graphs",
    "a negative size",
    "two functions of one name",
    "a chain of functions",
    "many nodes",
    *(f"weights {where}" for where in ("in the model", "that begin in a page", "that overlap")),
}
"""The changes that leave a model that some reader may take."""
