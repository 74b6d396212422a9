"""Operations on an ONNX model: read safely, check, infer types, convert between opsets, write."""
