"""The passes of ONNX Runtime."""
