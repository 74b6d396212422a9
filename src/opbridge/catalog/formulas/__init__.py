"""Formulas that several operators share: series, working precision, fitted tables."""
