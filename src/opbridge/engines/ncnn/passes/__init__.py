"""What a model needs for ncnn alone."""
