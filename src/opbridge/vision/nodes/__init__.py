"""The old nodes and their conversions, by family."""
