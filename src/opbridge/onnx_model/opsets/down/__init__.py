"""The steps from an opset to the previous one, one file per operator or family."""
