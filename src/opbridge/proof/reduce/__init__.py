"""The smallest model that still fails, for ``opbridge reduce``: what a failure is, what can be left out, the script."""
