"""Checks the result of every pass of opbridge that a test runs: it must be as valid as what the pass was given."""

from __future__ import annotations

from typing import Any

import onnx
import onnx_ir as ir

from opbridge.onnx_model.infer import without_weights
from opbridge.onnx_model.validity import check_change, problems

__all__ = ["check_every_pass", "refused_by_onnx"]


def check_every_pass() -> None:
    """Wrap the call of each pass from now on; the error names the pass and the node."""
    own = ir.passes.PassBase.__call__

    def call(self: Any, given: Any, /) -> Any:
        if not type(self).__module__.startswith("opbridge."):
            return own(self, given)
        model = given.model if isinstance(given, ir.passes.PassResult) else given
        wrong = problems(model)
        before = None if wrong else model.clone()
        result = own(self, given)
        if before is None:
            assert set(problems(result.model)) <= set(wrong), f"{type(self).__name__} made an invalid model worse"
        elif result.modified:
            check_change(type(self).__name__, result.model, before)
            refused = refused_by_onnx(result.model)
            assert not refused or refused_by_onnx(before), f"{type(self).__name__}: {refused}"
        return result

    ir.passes.PassBase.__call__ = call  # type: ignore[method-assign]


def refused_by_onnx(model: ir.Model) -> str:
    """What onnx's checker and its strict inference of types and shapes have against a model; empty for nothing."""
    try:
        proto = ir.serde.serialize_model(without_weights(model))
        onnx.checker.check_model(proto)
        onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True, data_prop=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, ir.serde.SerdeError) as error:
        return str(error)
    return ""
