"""Operators to which an opset only added types, inputs or attributes."""

ADDITIONS = {
    8: "Max MaxPool Mean Min Sum",
    9: "Cast Constant Flatten Gemm Greater Less MatMul PRelu",
    10: "AveragePool MaxPool",
    11: (
        "ArgMax ArgMin AveragePool Compress Concat Constant Conv ConvTranspose DepthToSpace Equal Flatten Gather Gemm "
        "Hardmax If LogSoftmax Loop LpPool MaxPool MaxUnpool NonMaxSuppression OneHot ReduceL1 ReduceL2 ReduceLogSum "
        "ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Scan Slice Softmax Split "
        "Squeeze TopK Unsqueeze"
    ),
    12: "ArgMax ArgMin Clip Constant GatherND Max Min Pow",
    13: "DequantizeLinear Identity QuantizeLinear",
    14: "GRU Identity LSTM RNN Relu Reshape",
    15: "BatchNormalization Pow Shape",
    16: "Identity ScatterElements ScatterND",
    18: "LpPool OptionalGetElement OptionalHasElement Pad Resize ScatterElements ScatterND",
    19: "AveragePool Cast CastLike DequantizeLinear Pad QuantizeLinear Resize",
    21: "DequantizeLinear QLinearMatMul QuantizeLinear",
    22: "AveragePool MaxPool",
    23: "DequantizeLinear QuantizeLinear",
    24: "Attention Cast CastLike",
    25: "Attention",
    27: "Range",
    28: "BitShift Mod SpaceToDepth",
}
