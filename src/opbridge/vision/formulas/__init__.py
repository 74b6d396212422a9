"""Geometry that several operators share."""
