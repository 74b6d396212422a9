"""ONNX Runtime."""

from opbridge.engines.onnxruntime.engine import OnnxRuntimeEngine

__all__ = ["ENGINE"]

ENGINE = OnnxRuntimeEngine
