"""Finds the smallest model that still fails."""
