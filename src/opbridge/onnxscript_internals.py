"""The internals of onnxscript that opbridge changes, all in this file, each with the reason.

* ``onnxscript.rewriter._matcher.SimplePatternMatcher._match_constant``: what torch.onnx optimizes an export with takes
  a number within 1e-8 of 0 for 0, and one within 1e-5 of 1 for 1. The ``eps`` of ``x / (norm + 1e-12)`` would go.
* ``onnxscript.rewriter._matcher.SimplePatternMatcher.match``: for a pattern that ends in several nodes it lists all
  nodes of the graph, once for each node of the graph, before it looks at that one: nine tenths of the time that a graph
  of 4000 nodes takes. One that the pattern does not end in is passed over.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx_ir as ir

__all__ = ["exact_constants", "quick_matching"]


@contextlib.contextmanager
def exact_constants() -> Iterator[None]:
    """Let rewrite rules match a number only with the same number, as the tensor's type rounds it."""
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
    """Let rewrite rules whose pattern ends in several nodes pass over the nodes that it can't end in."""
    from onnxscript.rewriter._basics import MatchResult
    from onnxscript.rewriter._matcher import SimplePatternMatcher

    own = SimplePatternMatcher.match

    def match(matcher: Any, model: Any, graph: Any, node: ir.Node, **options: Any) -> Any:
        pattern = matcher.pattern
        if not pattern.has_single_output_node:
            wanted = pattern.output_nodes[0].op_identifier()
            if wanted is not None and wanted != node.op_identifier():
                return MatchResult().fail(f"The pattern does not end in {node.op_type}.")
        return own(matcher, model, graph, node, **options)

    SimplePatternMatcher.match = match  # type: ignore[method-assign]
    try:
        yield
    finally:
        SimplePatternMatcher.match = own  # type: ignore[method-assign]
