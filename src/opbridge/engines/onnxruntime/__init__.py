"""ONNX Runtime."""

from pathlib import Path

from opbridge.engines.onnxruntime.engine import OnnxRuntimeEngine

__all__ = ["ENGINE", "adapter_source"]

ENGINE = OnnxRuntimeEngine


def adapter_source() -> Path:
    """The C++ file that is compiled together with kernels, so that ONNX Runtime takes the library."""
    return Path(__file__).with_name("adapter.cc")
