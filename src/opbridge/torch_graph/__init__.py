"""Tools for captured programs, and access to the internals of torch and onnxscript, each with a version guard."""

LOWEST_OPSET = 18
"""The opset for which PyTorch's mappings to ONNX are written."""
