"""The rows of a graph's picture, from a model."""

from __future__ import annotations

import onnx_ir as ir
import pytest
from onnx.parser import parse_model

from opbridge.bundle import graph
from opbridge.bundle.graph import GraphRow, graph_rows

pytestmark = pytest.mark.newest

MODEL = """
<ir_version: 10, opset_import: ["" : 18, "mylib" : 1]>
agraph (float[n] x, bool c) => (float[n] y)
<float[1] w = {2.0}>
{
  two = Constant <value = float[1] {2.0}> ()
  a = Mul (x, w)
  b = mylib.twice (a)
  y = If (c) <
    then_branch = g1 () => (float[n] t) { t = Add (b, two) },
    else_branch = g2 () => (float[n] e) { e = Identity (x) }
  >
}
"""


def model() -> ir.Graph:
    found = ir.from_proto(parse_model(MODEL)).graph
    for node in found:
        node.name = f"the_{node.op_type}"
    return found


def test_the_rows_are_inputs_nodes_and_outputs_with_what_they_read() -> None:
    assert graph_rows(model()) == (
        GraphRow("x"),
        GraphRow("c"),
        GraphRow("the_Mul", "Mul", (0,)),
        GraphRow("the_twice", "mylib::twice", (2,)),
        GraphRow("the_If", "If", (1, 3, 0)),
        GraphRow("y", "", (4,)),
    )


def test_a_large_graph_has_no_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "MOST_NODES", 2)
    assert graph_rows(model()) == ()
