"""The mappings of operators to ONNX: the decorators that declare them, and opbridge's own mappings."""
