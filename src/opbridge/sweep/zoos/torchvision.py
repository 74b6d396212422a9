"""torchvision: every model builder, with random weights."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from opbridge.sweep.zoos.trying import BATCH, DYNAMIC, IMAGES, first_that_runs, without_zeros

__all__ = ["PACKAGE", "build", "names"]

PACKAGE = "torchvision"
_IMAGE = {1: DYNAMIC, 2: DYNAMIC}
_SHAPES: Mapping[str, tuple[tuple[int, ...], ...]] = {
    "": ((2, 3, 64, 64), (2, 3, 96, 96), (2, 3, 224, 224)),
    "segmentation": ((2, 3, 64, 64),),
    "video": ((2, 3, 8, 64, 64), (1, 3, 16, 224, 224)),
}
"""The sizes of inputs to try by kind of model; "" stands for classification."""
_SPREAD = {"ssd300_vgg16": 0.2, "ssdlite320_mobilenet_v3_large": 1e5}
"""The factor of the classification weights of one-stage detectors; 10 for the others.

Random weights give all classes one score. A larger factor than 0.2 would give ssd300 the score 1 everywhere.
"""
_MOST_SPREADS = 10
_SLOW_WEIGHTS = ("googlenet", "inception_v3")


def names() -> list[str]:
    """The names of all builders."""
    from torchvision import models

    return list(models.list_models())


def build(name: str) -> Mapping[str, Any]:
    """The model with example inputs and dynamic sizes: the batch, and height and width where the model takes others."""
    from torchvision import models

    kind = models.get_model_builder(name).__module__.removeprefix("torchvision.models.").partition(".")[0]
    if kind == "detection":
        return _detector(name)
    if kind == "optical_flow":
        return _flow(name)
    return first_that_runs(_candidates(name, kind))


def _candidates(name: str, kind: str) -> Iterator[Callable[[], Mapping[str, Any]]]:
    shapes = _SHAPES.get(kind, _SHAPES[""])
    dynamic = IMAGES if kind == "segmentation" else BATCH
    return (functools.partial(_made, name, shape, dynamic) for shape in shapes)


def _made(name: str, shape: tuple[int, ...], dynamic: Mapping[int, Any]) -> dict[str, Any]:
    model = _model(name, **({"init_weights": False} if name in _SLOW_WEIGHTS else {}))
    return {"model": model, "args": (torch.randn(shape),), "dynamic_shapes": (dynamic,)}


@functools.cache
def _model(name: str, **options: Any) -> nn.Module:
    from torchvision import models

    if "segmentation" in models.get_model_builder(name).__module__:
        options["weights_backbone"] = None
    return without_zeros(models.get_model(name, weights=None, **options))


def _detector(name: str) -> Mapping[str, Any]:
    """A detector at small sizes, whose scores differ, so that some boxes survive its threshold."""
    from torchvision import models

    options: dict[str, Any] = {"min_size": 96, "max_size": 160}
    if "rcnn" in name:
        options |= {"rpn_pre_nms_top_n_test": 60, "rpn_post_nms_top_n_test": 40, "box_detections_per_img": 20}
    else:
        options = {} if name.startswith("ssd") else options
        options |= {"topk_candidates": 50, "detections_per_img": 20}
    model = models.get_model(name, weights=None, weights_backbone=None, **options)
    if "rcnn" in name:
        _spread(model.rpn.head.cls_logits, 20)
        _spread_until_found(model, model.roi_heads.box_predictor.cls_score)
    else:
        head = model.head.classification_head
        _spread(getattr(head, "cls_logits", head), _SPREAD.get(name, 10))
    return {"model": model, "args": ([torch.rand(3, 80, 100)],), "dynamic_shapes": ([_IMAGE],)}


def _spread_until_found(model: nn.Module, layer: nn.Module) -> None:
    """Spread the scores until several boxes survive the threshold: without any, a comparison would compare nothing."""
    for _ in range(_MOST_SPREADS):
        _spread(layer, 4)
        with torch.no_grad():
            found = model.eval()([torch.rand(3, 80, 100)])[0]
        if len(found["boxes"]) > 1:
            return
    raise ValueError(f"no box survives the threshold after {_MOST_SPREADS} spreads of the scores")


def _spread(layer: nn.Module, factor: float) -> None:
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name.endswith("weight"):
                parameter.mul_(factor)


def _flow(name: str) -> Mapping[str, Any]:
    from torchvision import models

    sides = [8 * torch.export.Dim(side, min=17) for side in ("height", "width")]
    frames = {2: sides[0], 3: sides[1]}
    model = _LastFlow(models.get_model(name, weights=None))
    return {
        "model": model,
        "args": (torch.rand(1, 3, 136, 152), torch.rand(1, 3, 136, 152)),
        "dynamic_shapes": (frames, frames),
    }


class _LastFlow(nn.Module):
    """RAFT with three updates instead of twelve, and the last of its flows."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        """The flow from the first image to the second."""
        flow: torch.Tensor = self.model(first, second, num_flow_updates=3)[-1]
        return flow
