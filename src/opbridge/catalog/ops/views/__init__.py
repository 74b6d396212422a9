"""Operators that deal with the memory layout of tensors."""
