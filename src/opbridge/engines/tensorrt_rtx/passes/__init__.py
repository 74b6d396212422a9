"""The passes of TensorRT."""
