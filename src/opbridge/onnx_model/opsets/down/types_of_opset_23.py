"""What opset 23 changed only in the types that it takes: nothing to do, or casts around the node."""

TYPES_ONLY = {
    23: (
        "Cast CastLike Constant ConstantOfShape Flatten Identity If Loop Pad Reshape Scan Shape Size Squeeze "
        "Transpose Unsqueeze"
    )
}
