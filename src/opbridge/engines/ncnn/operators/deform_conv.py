"""DeformConv by ncnn's DeformableConv2D, which has one group, one offset group and no batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from opbridge.atomic import TemporaryFolder
from opbridge.engines.ncnn.carried import array_of, mat_of
from opbridge.engines.ncnn.nets import fresh_net, load_net
from opbridge.errors import EngineError

__all__ = ["OPERATOR", "made"]

OPERATOR = "ai.onnx::DeformConv"

_Arrays = Sequence[np.ndarray | None]


def made(attributes: Mapping[str, Any], constants: _Arrays, threads: int) -> Callable[[_Arrays], list[np.ndarray]]:
    """The operator with its weights: a net for each range of channels that share a group and an offset group.

    Raises:
        EngineError: The weights are not constant, or the padding differs between the two ends.
    """
    weights = constants[1]
    if weights is None:
        raise EngineError(
            "ncnn's DeformableConv2D needs constant weights, and these are computed.", fix="make the weights constant."
        )
    groups, offset_groups = int(attributes.get("group", 1)), int(attributes.get("offset_group", 1))
    pieces = math.lcm(groups, offset_groups)
    channels = weights.shape[1] * groups // pieces
    results = weights.shape[0] // groups
    nets = []
    for piece in range(pieces):
        group = piece * groups // pieces
        start = piece * channels - group * weights.shape[1]
        part = weights[group * results : (group + 1) * results, start : start + channels]
        nets.append(_net(part, attributes, threads))

    def run(arrays: _Arrays) -> list[np.ndarray]:
        given = [*arrays, *[None] * (5 - len(arrays))]
        image, _, offsets, bias, mask = given
        assert image is not None
        assert offsets is not None
        found: list[np.ndarray | None] = [None] * groups
        for piece, net in enumerate(nets):
            shared = piece * offset_groups // pieces
            inputs = [image[:, piece * channels : (piece + 1) * channels], _part(offsets, shared, offset_groups)]
            if mask is not None:
                inputs.append(_part(mask, shared, offset_groups))
            group = piece * groups // pieces
            partial = _batched(net, inputs)
            before = found[group]
            found[group] = partial if before is None else before + partial
        whole = np.concatenate([result for result in found if result is not None], axis=1)
        return [whole if bias is None else whole + bias.reshape(1, -1, 1, 1)]

    return run


def _part(array: np.ndarray, position: int, count: int) -> np.ndarray:
    size = array.shape[1] // count
    return array[:, position * size : (position + 1) * size]


def _net(weights: np.ndarray, attributes: Mapping[str, Any], threads: int) -> Any:
    """The nets of the layer alone, with and without a mask, since a run decides which inputs are present."""
    strides, dilations = attributes.get("strides", [1, 1]), attributes.get("dilations", [1, 1])
    pads = attributes.get("pads", [0, 0, 0, 0])
    kernel = weights.shape[2:]
    numbers = {
        0: weights.shape[0],
        1: kernel[1],
        11: kernel[0],
        2: dilations[1],
        12: dilations[0],
        3: strides[1],
        13: strides[0],
        4: pads[1],
        15: pads[3],
        14: pads[0],
        16: pads[2],
        5: 0,
        6: weights.size,
    }
    settings = " ".join(f"{key}={value}" for key, value in numbers.items())
    nets = {}
    for count in (2, 3):
        names = [f"in{index}" for index in range(count)]
        lines = [f"Input {name} 0 1 {name}" for name in names]
        lines.append(f"DeformableConv2D deform {count} 1 {' '.join(names)} out0 {settings}")
        nets[count] = fresh_net(threads)
        with TemporaryFolder() as folder:
            param, data = Path(folder) / "deform.param", Path(folder) / "deform.bin"
            param.write_text(f"7767517\n{len(lines)} {count + 1}\n" + "\n".join(lines) + "\n")
            # Four zero bytes mark float32 weights.
            data.write_bytes(bytes(4) + np.ascontiguousarray(weights, np.float32).tobytes())
            load_net(nets[count], param, data)
    return nets


def _batched(nets: Mapping[int, Any], inputs: Sequence[np.ndarray]) -> np.ndarray:
    results = []
    for index in range(len(inputs[0])):
        extractor = nets[len(inputs)].create_extractor()
        for position, array in enumerate(inputs):
            extractor.input(f"in{position}", mat_of(array[index], "An input of DeformConv"))
        code, mat = extractor.extract("out0")
        if code:
            raise EngineError(f"ncnn's DeformableConv2D failed, with code {code}.", fix="pass inputs of other sizes.")
        results.append(array_of(mat, "float32"))
    return np.stack(results)
