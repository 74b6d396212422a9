"""The evaluator of the onnx package."""

from opbridge.engines.reference.engine import ReferenceEngine

__all__ = ["ENGINE"]

ENGINE = ReferenceEngine
