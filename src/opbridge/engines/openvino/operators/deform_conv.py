"""Deformable convolution."""

from __future__ import annotations

from typing import Any

__all__ = ["OPERATOR", "convert"]

OPERATOR = "ai.onnx::DeformConv"


def convert(node: Any) -> list[Any]:
    """The outputs of a DeformConv node (X, W, offset, optionally B and mask) as OpenVINO's own operator.

    Both treat values outside the image as zeros: ``bilinear_interpolation_pad``. OpenVINO is fast for one group of
    channels only (2026.4.1: 100 times as fast), so each group gets an operator of its own.
    """
    from openvino import opset8

    data, filters, offsets, *optional = (node.get_input(index) for index in range(node.get_input_size()))
    bias = optional[0] if optional and _is_given(optional[0]) else None
    mask = optional[1] if len(optional) > 1 and _is_given(optional[1]) else None
    pads = list(node.get_attribute("pads", [0, 0, 0, 0]))
    numbers = (
        list(node.get_attribute("strides", [1, 1])),
        pads[:2],
        pads[2:],
        list(node.get_attribute("dilations", [1, 1])),
    )
    groups, offset_groups = node.get_attribute("group", 1), node.get_attribute("offset_group", 1)
    parts = groups if offset_groups % groups == 0 or groups % offset_groups == 0 else 1
    shared = min(parts, offset_groups)

    def split(value: Any, axis: int, count: int) -> list[Any]:
        return list(opset8.split(value, axis, count).outputs()) if count > 1 else [value]

    shifts, factors = split(offsets, 1, shared), None if mask is None else split(mask, 1, shared)
    convolved = [
        opset8.deformable_convolution(
            image,
            shifts[part * shared // parts],
            weight,
            *numbers,
            None if factors is None else factors[part * shared // parts],
            group=groups // parts,
            deformable_group=offset_groups // shared,
            bilinear_interpolation_pad=True,
        )
        for part, (image, weight) in enumerate(zip(split(data, 1, parts), split(filters, 0, parts), strict=True))
    ]
    result = opset8.concat(convolved, 1) if parts > 1 else convolved[0]
    if bias is not None:
        result = opset8.add(result, opset8.unsqueeze(opset8.unsqueeze(bias, -1), -1))
    return [result.output(0)]


def _is_given(value: Any) -> bool:
    """Whether an optional input is present; OpenVINO represents an absent input by a placeholder node."""
    return str(value.get_node().get_type_name()) != "NullNode"
