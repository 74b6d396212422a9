"""What opset 14 changed only in the types that it takes: nothing to do, or casts around the node."""

TYPES_ONLY = {14: "Add CumSum Div Mul Sub"}
