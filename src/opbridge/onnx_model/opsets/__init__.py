"""Takes a model of any opset to any other: down and up by steps of one opset, one small file per operator.

``down/`` and ``up/`` hold the steps, and are found by listing. ``convert.py`` walks them, ``site.py`` is what a step
sees of a node, ``building.py`` makes new nodes.
"""

from opbridge.onnx_model.opsets.convert import NEWEST_OPSET, OLDEST_OPSET, convert_opset
from opbridge.onnx_model.opsets.result import ConvertedOpset, Unexpressed

__all__ = ["NEWEST_OPSET", "OLDEST_OPSET", "ConvertedOpset", "Unexpressed", "convert_opset"]
