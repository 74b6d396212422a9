"""A captured program as such, and the internals of torch and onnxscript, each with a version guard."""

LOWEST_OPSET = 18
"""The opset that PyTorch's own mappings to ONNX are written for."""
