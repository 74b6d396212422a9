"""All internals of onnxscript, and of its use in torch.onnx, that opbridge changes, each with the reason.

* ``onnxscript.rewriter._matcher.SimplePatternMatcher._match_constant``: torch.onnx's optimizer treats a number within
  1e-8 of 0 as 0, and a number within 1e-5 of 1 as 1. This would remove the ``eps`` of ``x / (norm + 1e-12)``.
* ``onnxscript.rewriter.RewriteRule.try_rewrite``: each rule is tried on every node of a graph with four calls, and a
  pattern with several final nodes first lists all nodes. For a graph of thousands of nodes this takes most of the time.
  Nodes whose operator differs from the pattern's final operator are therefore skipped.
* ``torch.onnx._internal.exporter._torchlib.ops.hop.call_op``: the condition of a loop is called in the version of the
  standard operators, and the functions inside in version 1, so that a loop that contains branches can't be translated.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx_ir as ir

__all__ = ["exact_constants", "nested_subgraphs", "quick_matching"]


@contextlib.contextmanager
def exact_constants() -> Iterator[None]:
    """Make rewrite rules match only numbers that are equal after rounding to the tensor's type."""
    from onnxscript.rewriter._matcher import SimplePatternMatcher

    own = SimplePatternMatcher._match_constant

    def match(matcher: Any, pattern: Any, value: ir.Value) -> Any:
        tensor = ir.convenience.get_const_tensor(value)
        if tensor is not None and tensor.size == 1 and isinstance(pattern.value, int | float):
            found = tensor.numpy().reshape(-1)
            if found[0] != np.array([pattern.value]).astype(found.dtype)[0]:
                return matcher.fail(f"{value.name} is {found[0]}, not {pattern.value}.")
        return own(matcher, pattern, value)

    SimplePatternMatcher._match_constant = match  # type: ignore[method-assign]
    try:
        yield
    finally:
        SimplePatternMatcher._match_constant = own  # type: ignore[method-assign]


@contextlib.contextmanager
def quick_matching() -> Iterator[None]:
    """Make rewrite rules skip nodes that cannot be the final node of their pattern."""
    from onnxscript.rewriter import RewriteRule

    own = RewriteRule.try_rewrite
    ends: dict[Any, str | None] = {}

    def try_rewrite(rule: Any, model: Any, graph: Any, node: ir.Node, **options: Any) -> Any:
        try:
            wanted = ends[rule]
        except KeyError:
            wanted = ends[rule] = _last_operator(rule)
        if wanted is not None and wanted != node.op_type:
            return None
        return own(rule, model, graph, node, **options)

    RewriteRule.try_rewrite = try_rewrite  # type: ignore[method-assign]
    try:
        yield
    finally:
        RewriteRule.try_rewrite = own  # type: ignore[method-assign]


def _last_operator(rule: Any) -> str | None:
    """The operator of the (first) final node of a rule's pattern; None if there are alternatives."""
    identifier = rule._target_pattern.output_nodes[0].op_identifier()
    return None if identifier is None else identifier[1]


@contextlib.contextmanager
def nested_subgraphs() -> Iterator[None]:
    """Let torch.onnx translate a loop that contains branches or loops."""
    hop: Any = importlib.import_module("torch.onnx._internal.exporter._torchlib.ops.hop")
    own = hop.call_op

    def call_op(*args: Any, **kwargs: Any) -> Any:
        outputs = own(*args, **kwargs)
        node = outputs[0].producer()
        if node.domain:
            node.version = 1
        return outputs

    hop.call_op = call_op
    try:
        yield
    finally:
        hop.call_op = own
