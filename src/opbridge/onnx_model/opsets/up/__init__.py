"""The steps from an opset to the one after it: one operator or family, one file."""
