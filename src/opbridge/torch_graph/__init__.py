"""The captured graph: what it is made of, what is done to it, and how the user's model stays as it is meanwhile."""
