"""Standard operators that OpenVINO's ONNX frontend has no rule for, made of OpenVINO's own.

Each file defines ``OPERATOR``, ``"ai.onnx::Name"``, and ``convert(node)``, which gives the node's outputs.
"""
