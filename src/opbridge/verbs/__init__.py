"""The public functions: diagnose, export, verify, compare, reduce and the others."""
