"""Findings about old declarations: one file each."""
