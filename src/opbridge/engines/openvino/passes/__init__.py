"""The passes of OpenVINO."""
