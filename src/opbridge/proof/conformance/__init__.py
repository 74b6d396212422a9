"""PyTorch's operator database through an exporter and an engine."""
