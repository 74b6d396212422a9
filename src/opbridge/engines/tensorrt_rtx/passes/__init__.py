"""The passes of TensorRT alone."""
