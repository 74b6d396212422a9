"""Standard operators without a rule in OpenVINO's ONNX frontend, built from OpenVINO's own operators.

Each file defines ``OPERATOR``, ``"ai.onnx::Name"``, and ``convert(node)``, which returns the node's outputs.
"""
