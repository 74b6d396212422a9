"""Tests an exporter and an engine with PyTorch's operator database."""
