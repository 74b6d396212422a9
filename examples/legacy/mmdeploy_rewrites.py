"""Rewriters of MMDeploy: boxes from distances without in-place writes, and grid_sample as one node.

The head of a detector often converts distances to boxes with masked in-place writes, and samples features at points.
For every engine, a formula that all engines run replaces the writes. For an engine that has mmcv's node, this node
replaces the sampling.

    opbridge export examples/legacy/mmdeploy_rewrites.py:model -o build/points

exports the unmodified model; ``export`` below exports it with the rewriters.
"""

import torch
from torch.onnx import symbolic_helper

import opbridge
from opbridge.legacy.rewriters import FUNCTION_REWRITER, MODULE_REWRITER, SYMBOLIC_REWRITER, for_engine


def distance2bbox(points, distance, limit):
    """Boxes around points, by their distances to the four sides, cut off at the image's border."""
    boxes = torch.cat([points - distance[:, :2], points + distance[:, 2:]], 1)
    boxes[boxes < 0] = 0
    boxes[boxes > limit] = limit
    return boxes


@FUNCTION_REWRITER.register_rewriter(func_name=f"{__name__}.distance2bbox")
def distance2bbox__default(points, distance, limit):
    context = FUNCTION_REWRITER.get_context()
    boxes = torch.cat([points - distance[:, :2], points + distance[:, 2:]], 1)
    return boxes.clamp(0.0, context.cfg.get("limit", limit))


@SYMBOLIC_REWRITER.register_symbolic("grid_sampler", is_pytorch=True, backend="ncnn")
def grid_sampler__ncnn(g, input, grid, interpolation_mode, padding_mode, align_corners):
    return g.op(
        "mmcv::grid_sampler",
        input,
        grid,
        interpolation_mode_i=symbolic_helper._maybe_get_const(interpolation_mode, "i"),
        padding_mode_i=symbolic_helper._maybe_get_const(padding_mode, "i"),
        align_corners_i=symbolic_helper._maybe_get_const(align_corners, "b"),
    )


class Mish(torch.nn.Module):
    def forward(self, x):
        return x * torch.tanh(torch.nn.functional.softplus(x))


@MODULE_REWRITER.register_rewrite_module(Mish, backend="ncnn")
class HardMish(torch.nn.Module):
    """An approximation that a small device can afford."""

    def __init__(self, module, deploy_cfg):
        super().__init__()
        self.slope = deploy_cfg.get("slope", 6.0)

    def forward(self, x):
        return x * torch.relu(x + 3).clamp(max=self.slope) / self.slope


class Head(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 4)
        self.activation = Mish()

    def forward(self, features, points, image):
        distance = self.activation(self.layer(features)).abs()
        boxes = distance2bbox(points, distance, 10.0)
        grid = (points / 5 - 1).reshape(1, 1, -1, 2)
        return boxes, torch.nn.functional.grid_sample(image, grid, align_corners=False)


def model():
    torch.manual_seed(0)
    return {
        "model": Head().eval(),
        "args": (torch.randn(5, 8), torch.rand(5, 2) * 10, torch.randn(1, 3, 10, 10)),
        "input_names": ["features", "points", "image"],
        "output_names": ["boxes", "samples"],
    }


def export(path, backend):
    """Export the head for an engine's rewriters, to be run in ONNX Runtime."""
    entry = model()
    with for_engine(backend, {"limit": 10.0}) as rewriters:
        return opbridge.export(
            rewriters.replaced(entry["model"]),
            entry["args"],
            path=path,
            ops=rewriters.ops,
            opset=18,
            verify=backend == "onnxruntime",
        )
