"""Operators that say how elements lie in memory."""
