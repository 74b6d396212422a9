"""Compares two models with each other."""
