"""The checks of an operator, one concern per file; :func:`opbridge.operator_check.check_operators` runs them."""
