"""What opset 24 changed only in the types that it takes: nothing to do, or casts around the node."""

TYPES_ONLY = {
    24: (
        "Constant ConstantOfShape DequantizeLinear Flatten Identity If Loop Pad QuantizeLinear Reshape Scan "
        "Shape Size SplitToSequence Squeeze TopK Transpose Unsqueeze"
    )
}
