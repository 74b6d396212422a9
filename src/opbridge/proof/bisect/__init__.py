"""The first mismatching node: values inside a model, compared between an engine and PyTorch."""
