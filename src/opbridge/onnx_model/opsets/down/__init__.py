"""The steps from an opset to the one before it: one operator or family, one file."""
