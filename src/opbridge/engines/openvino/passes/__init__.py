"""What a model is changed into for OpenVINO alone."""
