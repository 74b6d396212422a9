"""OpenVINO."""

from opbridge.engines.openvino.engine import OpenVinoEngine

__all__ = ["ENGINE"]

ENGINE = OpenVinoEngine
