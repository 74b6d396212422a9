"""The operators: one file each, with the kernel beside it."""
