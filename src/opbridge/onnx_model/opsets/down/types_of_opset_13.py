"""What opset 13 changed only in the types that it takes: nothing to do, or casts around the node."""

TYPES_ONLY = {
    13: (
        "Abs Add ArgMax ArgMin Cast Ceil Clip Concat Constant DepthToSpace Div Dropout Equal Erf Exp Expand "
        "Flatten Floor Gather GatherElements GatherND Gemm Greater If IsNaN LRN Less Log Loop MatMul Max Mean "
        "MeanVarianceNormalization Min Mod Mul Neg NegativeLogLikelihoodLoss NonZero Pad Pow Reciprocal "
        "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd "
        "ReduceSumSquare Relu Reshape ScatterElements ScatterND Shape Sigmoid Sign Size Slice "
        "SoftmaxCrossEntropyLoss SpaceToDepth Sqrt Sub Sum Tanh Tile Transpose"
    )
}
