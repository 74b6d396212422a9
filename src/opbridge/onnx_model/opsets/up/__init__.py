"""The steps from an opset to the next one, one file per operator or family."""
