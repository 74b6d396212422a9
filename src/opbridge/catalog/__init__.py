"""The mappings of operators to ONNX: how they are declared, and those that opbridge brings."""
