"""What opset 20 changed only in the types that it takes: nothing to do, or casts around the node."""

TYPES_ONLY = {20: "ConstantOfShape IsInf IsNaN ReduceMax ReduceMin"}
