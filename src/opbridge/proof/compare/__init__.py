"""Two models compared with each other."""
