"""What opset 28 changed only in the types that it takes: nothing to do, or casts around the node."""

TYPES_ONLY = {
    28: (
        "Cast Celu Compress DepthToSpace DequantizeLinear Einsum OneHot Optional OptionalGetElement "
        "OptionalHasElement QuantizeLinear ReduceLogSum ReduceLogSumExp ReverseSequence Unique"
    )
}
