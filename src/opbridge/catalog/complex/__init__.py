"""The rules that compute torch operators on complex tensors as pairs of real tensors, one file per family."""
