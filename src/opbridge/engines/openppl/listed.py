"""The operators that OpenPPL's x86 engine has kernels for, with the opsets of the models that it takes them in.

OpenPPL can't be asked: it names an operator that it lacks in a line of its log alone, after the model was loaded, and
it has no package that could be installed for asking. So this is a list, read from the kernels that the x86 engine
registers in ppl.nn 0.9.2 (``src/ppl/nn/engines/x86``); ``Constant`` is its parser's. What a node of these computes is
judged where OpenPPL runs it, not here. Its own ``pmx`` operators are left out: no ONNX model has them.
"""

from __future__ import annotations

__all__ = ["LISTED", "LISTED_VERSION"]

LISTED_VERSION = "0.9.2"
"""The release that the list is of."""

# By the first and the last opset.
_STANDARD = {
    (1, 11): "ArgMax",
    # From 13 on the axes of ReduceSum are an input, which is not looked at: it adds up everything.
    (1, 12): "If Loop ReduceSum",
    (1, 14): "GRU Shape",
    (1, 16): (
        "AveragePool Conv ConvTranspose DepthToSpace Flatten Gather GlobalAveragePool Identity MatMul "
        "MaxPool Neg Not RandomUniform ReduceMax ReduceMean ReduceMin ReduceProd Slice Softmax "
        "Squeeze TopK Transpose Unsqueeze"
    ),
    (2, 16): "Pad",
    (2, 17): "Split",
    (4, 16): "Concat",
    (5, 16): "Reshape",
    # Without Abs, Max and Min: those of a build of its master give zeros and other wrong numbers.
    (6, 16): "Ceil Clip Exp Floor HardSigmoid LeakyRelu Log PRelu Relu Sigmoid Sqrt Sum Tanh Tile",
    (7, 13): "LSTM",
    (7, 16): "Add And Cos Div Equal Greater Less Mul Pow Sin Sub",
    (8, 16): "Expand",
    (9, 11): "OneHot",
    (9, 12): "NonZero",
    (9, 13): "BatchNormalization",
    (9, 16): "Cast Constant ConstantOfShape Erf Gemm MaxUnpool Sign Where",
    (10, 15): "RoiAlign",
    (10, 16): "NonMaxSuppression",
    (11, 11): "GatherND",
    (11, 15): "ScatterElements ScatterND",
    (11, 16): "CumSum Range Resize SequenceAt SplitToSequence",
    (12, 18): "Einsum",
    (14, 16): "HardSwish",
}
_MMCV = "MMCVModulatedDeformConv2d MMCVRoiAlign NonMaxSuppression grid_sampler"

LISTED: dict[tuple[str, str], tuple[int, int]] = {
    **{("", name): opsets for opsets, names in _STANDARD.items() for name in names.split()},
    **{("mmcv", name): (1, 1) for name in _MMCV.split()},
}
"""By domain and operator type: the first and the last version of the domain that a model may import."""
