"""The operators for which OpenPPL's x86 engine has kernels, with the opsets of the models in which it takes them.

OpenPPL can't be asked: it reports a missing operator only in its log, after loading the model, and there is no package
to install. So this is a list of the kernels that the x86 engine registers in ppl.nn 0.9.2 (``src/ppl/nn/engines/x86``);
``Constant`` is handled by its parser. Verification, not this list, judges the results. OpenPPL's own ``pmx`` operators
are left out, since no ONNX model has them.
"""

from __future__ import annotations

__all__ = ["LISTED", "LISTED_VERSION"]

LISTED_VERSION = "0.9.2"
"""The release that the list describes."""

# The keys are the first and the last opset.
_STANDARD = {
    (1, 11): "ArgMax",
    # From opset 13 on, the axes of ReduceSum are an input, which OpenPPL ignores: it sums over all axes.
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
    # Abs, Max and Min are left out: a build of OpenPPL's master gives zeros and other wrong numbers for them.
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
"""The first and the last version of the domain that a model may import, by domain and operator type."""
