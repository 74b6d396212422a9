"""Deformable convolution."""

from __future__ import annotations

from typing import Any

__all__ = ["OPERATOR", "convert"]

OPERATOR = "ai.onnx::DeformConv"


def convert(node: Any) -> list[Any]:
    """The outputs of a DeformConv node (X, W, offset, optionally B and mask) as OpenVINO's own operator.

    Both treat values outside the image as zeros: ``bilinear_interpolation_pad``.
    """
    from openvino import opset8

    data, filters, offsets, *optional = (node.get_input(index) for index in range(node.get_input_size()))
    bias = optional[0] if optional and _is_given(optional[0]) else None
    mask = optional[1] if len(optional) > 1 and _is_given(optional[1]) else None
    pads = list(node.get_attribute("pads", [0, 0, 0, 0]))
    convolved = opset8.deformable_convolution(
        data,
        offsets,
        filters,
        list(node.get_attribute("strides", [1, 1])),
        pads[:2],
        pads[2:],
        list(node.get_attribute("dilations", [1, 1])),
        mask,
        group=node.get_attribute("group", 1),
        deformable_group=node.get_attribute("offset_group", 1),
        bilinear_interpolation_pad=True,
    )
    if bias is None:
        return [convolved.output(0)]
    shaped = opset8.unsqueeze(opset8.unsqueeze(bias, -1), -1)
    return [opset8.add(convolved, shaped).output(0)]


def _is_given(value: Any) -> bool:
    """Whether an optional input is present; OpenVINO represents an absent input by a placeholder node."""
    return str(value.get_node().get_type_name()) != "NullNode"
