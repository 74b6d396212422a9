"""Operators of which an opset changed only the element types: their nodes stay unchanged or get casts around them."""

TYPES_ONLY = {
    12: "MaxPool ReduceMax ReduceMin",
    13: (
        "Abs Add ArgMax ArgMin Cast Ceil Clip Concat Constant DepthToSpace Div Dropout Equal Erf Exp Expand "
        "Flatten Floor Gather GatherElements GatherND Gemm Greater If IsNaN LRN Less Log Loop MatMul Max Mean "
        "MeanVarianceNormalization Min Mod Mul Neg NegativeLogLikelihoodLoss NonZero Pad Pow Reciprocal ReduceL1 "
        "ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSumSquare Relu "
        "Reshape ScatterElements ScatterND Shape Sigmoid Sign Size Slice SoftmaxCrossEntropyLoss SpaceToDepth Sqrt "
        "Sub Sum Tanh Tile Transpose"
    ),
    14: "Add CumSum Div Mul Sub",
    16: "GreaterOrEqual If LeakyRelu LessOrEqual Loop PRelu Scan Where",
    19: "Constant Equal Identity If Loop Reshape Scan Shape Size",
    20: "ConstantOfShape IsInf IsNaN ReduceMax ReduceMin",
    21: (
        "Cast CastLike Constant ConstantOfShape Flatten Identity If Loop Pad Reshape Scan Shape Size Squeeze "
        "Transpose Unsqueeze"
    ),
    22: (
        "Acos Acosh Asin Asinh Atan Atanh Bernoulli Conv ConvTranspose Cos Cosh DeformConv Det Dropout Elu EyeLike "
        "GRU GlobalAveragePool GlobalLpPool GlobalMaxPool GridSample HardSigmoid HardSwish InstanceNormalization "
        "LSTM LpNormalization LpPool MaxRoiPool MaxUnpool Mish Multinomial NegativeLogLikelihoodLoss RNN "
        "RandomNormal RandomNormalLike RandomUniform RandomUniformLike RoiAlign Round Selu Sin Sinh Softplus "
        "Softsign Tan ThresholdedRelu"
    ),
    23: (
        "Cast CastLike Constant ConstantOfShape Flatten Identity If Loop Pad Reshape Scan Shape Size Squeeze "
        "Transpose Unsqueeze"
    ),
    24: (
        "Constant ConstantOfShape DequantizeLinear Flatten Identity If Loop Pad QuantizeLinear Reshape Scan Shape "
        "Size SplitToSequence Squeeze TopK Transpose Unsqueeze"
    ),
    25: (
        "Cast CastLike Constant ConstantOfShape DequantizeLinear Flatten Identity If Loop Pad QuantizeLinear "
        "Reshape Scan Shape Size Squeeze Transpose Unsqueeze"
    ),
    28: (
        "Cast Celu Compress DepthToSpace DequantizeLinear Einsum OneHot Optional OptionalGetElement "
        "OptionalHasElement QuantizeLinear ReduceLogSum ReduceLogSumExp ReverseSequence Unique"
    ),
}
