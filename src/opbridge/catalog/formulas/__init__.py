"""Formulas shared by several operators: series, working precision, fitted tables."""
