"""ExecuTorch, PyTorch's own runtime for devices. It takes a torch program, not an ONNX model."""

from opbridge.engines.executorch.engine import ExecuTorchEngine

__all__ = ["ENGINE"]

ENGINE = ExecuTorchEngine
