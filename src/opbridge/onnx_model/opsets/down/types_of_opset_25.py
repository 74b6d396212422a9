"""What opset 25 changed only in the types that it takes: nothing to do, or casts around the node."""

TYPES_ONLY = {
    25: (
        "Cast CastLike Constant ConstantOfShape DequantizeLinear Flatten Identity If Loop Pad QuantizeLinear "
        "Reshape Scan Shape Size Squeeze Transpose Unsqueeze"
    )
}
