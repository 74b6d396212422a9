"""What opbridge changes in onnxscript: the results stay those of onnxscript, or are the exact ones."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from typing import Any

import onnx
import pytest
from onnx import helper

pytest.importorskip("onnxscript")

import itertools

import onnx_ir as ir
from onnxscript import optimizer
from onnxscript.rewriter import RewriteRule
from onnxscript.rewriter._matcher import SimplePatternMatcher

from opbridge.torch_graph.onnxscript_internals import exact_constants, nested_subgraphs, quick_matching

Context = Callable[[], contextlib.AbstractContextManager[None]]


def optimized(model: onnx.ModelProto, *contexts: Context) -> onnx.ModelProto:
    made = ir.from_proto(model)
    with contextlib.ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context())
        optimizer.optimize_ir(made)
    return ir.to_proto(made)


def halves(count: int) -> onnx.ModelProto:
    """Two slices that are the halves of x, which one rule makes a Split, behind ``count`` other nodes."""
    names = ["x", *(f"h{i}" for i in range(count))]
    nodes = [helper.make_node("Sin", [before], [after]) for before, after in itertools.pairwise(names)]
    # The rule takes the first pair of slices, and compares it with no other: the second half comes first.
    for output, begin, end in (("b", 2, 4), ("a", 0, 2)):
        parts = []
        for name, value in (("begin", begin), ("end", end), ("axis", 1)):
            parts.append(f"{output}_{name}")
            nodes.append(helper.make_node("Constant", [], [parts[-1]], value_ints=[value]))
        nodes.append(helper.make_node("Slice", [names[-1], *parts], [output]))
    value = [helper.make_tensor_value_info(name, 1, [3, size]) for name, size in (("x", 4), ("a", 2), ("b", 2))]
    inner = [helper.make_tensor_value_info(name, 1, [3, 4]) for name in names[1:]]
    graph = helper.make_graph(nodes, "halves", value[:1], value[1:], value_info=inner)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, str]]:
    """Whether a pattern with several ends was looked for, and the operator of the node; for each time."""
    found: list[tuple[bool, str]] = []
    own = SimplePatternMatcher.match

    def match(matcher: Any, model: Any, graph: Any, node: ir.Node, **options: Any) -> Any:
        found.append((not matcher.pattern.has_single_output_node, node.op_type))
        return own(matcher, model, graph, node, **options)

    monkeypatch.setattr(SimplePatternMatcher, "match", match)
    return found


def test_quick_matching_changes_no_result(looked_at: list[tuple[bool, str]]) -> None:
    expected = optimized(halves(5))
    assert [node.op_type for node in expected.graph.node][-1] == "Split"
    assert {(True, "Sin"), (False, "Sin")} <= set(looked_at)
    before = looked_at.count((False, "Sin"))
    looked_at.clear()
    assert optimized(halves(5), quick_matching) == expected
    assert (True, "Slice") in looked_at
    assert (True, "Sin") not in looked_at
    assert looked_at.count((False, "Sin")) < before / 5, "what is left is a pattern that any operator may end"


def test_a_small_number_is_not_zero() -> None:
    nodes = [
        helper.make_node("Constant", [], ["eps"], value_float=1e-12),
        helper.make_node("Add", ["x", "eps"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(name, 1, [3]) for name in "xy"]
    graph = helper.make_graph(nodes, "small", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    assert "Add" not in [node.op_type for node in optimized(model).graph.node]
    assert "Add" in [node.op_type for node in optimized(model, exact_constants).graph.node]


def test_both_are_undone() -> None:
    before = RewriteRule.try_rewrite, SimplePatternMatcher._match_constant
    with pytest.raises(ZeroDivisionError), exact_constants(), quick_matching():
        1 / 0  # noqa: B018
    assert (RewriteRule.try_rewrite, SimplePatternMatcher._match_constant) == before


def test_torch_onnx_writes_calls_of_inner_functions_with_call_op() -> None:
    hop = importlib.import_module("torch.onnx._internal.exporter._torchlib.ops.hop")
    own = hop.call_op
    with nested_subgraphs():
        assert hop.call_op is not own
    assert hop.call_op is own
