"""What opset 16 changed only in the types that it takes: nothing to do, or casts around the node."""

TYPES_ONLY = {16: "GreaterOrEqual If LeakyRelu LessOrEqual Loop PRelu Scan Where"}
