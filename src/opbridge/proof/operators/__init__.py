"""Checks the operators of a file on their samples."""
