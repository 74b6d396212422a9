"""ONNX operators that layers of ncnn's own compute, which pnnx does not translate: one operator, one file.

Each file defines ``OPERATOR``, ``"ai.onnx::DeformConv"`` for one, and
``made(attributes, constants, threads) -> Callable[[inputs], results]``: attributes are the node's, constants are arrays
at the positions of the inputs that are constant and None at the others, inputs and results are arrays.
"""
