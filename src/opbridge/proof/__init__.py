"""The proof that an engine computes what PyTorch computes, and the search for the place where it doesn't."""
