"""What opset 19 changed only in the types that it takes: nothing to do, or casts around the node."""

TYPES_ONLY = {19: "Constant Equal Identity If Loop Reshape Scan Shape Size"}
