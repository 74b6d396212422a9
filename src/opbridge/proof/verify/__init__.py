"""The verification of a model: inputs, reference, tolerance and verdict."""
