"""ONNX operators that pnnx does not translate and that ncnn's layers can compute: one file per operator.

Each file defines ``OPERATOR``, such as ``"ai.onnx::DeformConv"``, and
``made(attributes, constants, threads) -> Callable[[inputs], results]``: attributes are the node's, constants are arrays
at the positions of the inputs that are constant and None at the others, inputs and results are arrays.
"""
