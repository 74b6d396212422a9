"""Converts a model from any opset to any other, in steps of one opset.

``down/`` and ``up/`` contain the steps, one small file per operator or family; the files are found by listing these
folders. ``convert.py`` applies the steps, ``site.py`` is the interface of a step to a node, and ``building.py`` creates
new nodes.
"""

from opbridge.onnx_model.opsets.convert import NEWEST_OPSET, OLDEST_OPSET, convert_opset
from opbridge.onnx_model.opsets.result import ConvertedOpset, Unexpressed

__all__ = ["NEWEST_OPSET", "OLDEST_OPSET", "ConvertedOpset", "Unexpressed", "convert_opset"]
