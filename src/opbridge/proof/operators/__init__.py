"""The operators of a file, checked on their samples."""
