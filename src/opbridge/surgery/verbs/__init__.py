"""The verbs of surgery, one per file."""
