"""The passes of ncnn."""
