"""What opset 12 changed only in the types that it takes: nothing to do, or casts around the node."""

TYPES_ONLY = {12: "MaxPool ReduceMax ReduceMin"}
