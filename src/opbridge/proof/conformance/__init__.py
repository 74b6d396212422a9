"""PyTorch's own operator database through an exporter and an engine: what works, and where the rest fails."""
