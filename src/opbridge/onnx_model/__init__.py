"""An ONNX model as such: read safely, check, infer types, convert between opsets, write."""
