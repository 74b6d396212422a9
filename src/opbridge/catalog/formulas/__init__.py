"""What the formulas of several operators are made of: series, working precision, fitted tables."""
