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
_MOST_SPREADS, _FEWEST_BOXES = 20, 5
_SMALLEST_VARIANCE = 0.01
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

    # At fewer pixels, a random MobileNet has equal features everywhere, up to rounding errors.
    sides = (320, 480) if "mobilenet" in name else (96, 160)
    options: dict[str, Any] = {"min_size": sides[0], "max_size": sides[1]}
    if "rcnn" in name:
        options |= {"rpn_pre_nms_top_n_test": 60, "rpn_post_nms_top_n_test": 40, "box_detections_per_img": 20}
    else:
        options = {} if name.startswith("ssd") else options
        options |= {"topk_candidates": 50, "detections_per_img": 20}
    model = models.get_model(name, weights=None, weights_backbone=None, **options).eval()
    if "mobilenet" in name:
        _normalize(model)
    if "rcnn" in name:
        _spread(model, model.roi_heads.box_predictor.cls_score)
    else:
        head = model.head.classification_head
        _spread(model, getattr(head, "cls_logits", head))
    return {"model": model, "args": (_image(),), "dynamic_shapes": ([_IMAGE],)}


def _normalize(model: nn.Module) -> None:
    """Give each batch normalization the statistics of an image.

    Without them, the features of a random MobileNet, and so the scores of all boxes, are equal up to rounding errors.
    """
    from torchvision.ops import FrozenBatchNorm2d

    def measure(norm: Any, inputs: tuple[torch.Tensor]) -> None:
        mean = inputs[0].mean((0, 2, 3), keepdim=True)
        variance = (inputs[0] - mean).square().mean((0, 2, 3))
        norm.running_mean.copy_(mean.flatten())
        norm.running_var.copy_(variance.clamp_min(_SMALLEST_VARIANCE))

    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d | FrozenBatchNorm2d)]
    hooks = [norm.register_forward_pre_hook(measure) for norm in norms]
    _found(model)
    for hook in hooks:
        hook.remove()


def _spread(model: nn.Module, head: nn.Module) -> None:
    """Change the last layers of the scores so that boxes have different scores, and enough survive the threshold.

    The biases make the mean of each score 0: a random network prefers one class, or the background, everywhere.
    """
    layers: list[Any] = [
        module for module in head.modules() if isinstance(module, nn.Linear | nn.Conv2d) and module.bias is not None
    ]
    means: dict[nn.Module, list[torch.Tensor]] = {layer: [] for layer in layers}

    def measure(layer: nn.Module, _: Any, scores: torch.Tensor) -> None:
        means[layer].append(scores.mean((0, 2, 3)[: scores.dim() - 1]))

    hooks = [layer.register_forward_hook(measure) for layer in layers]
    _found(model)
    for hook in hooks:
        hook.remove()
    with torch.no_grad():
        for layer in layers:
            layer.bias -= torch.stack(means[layer]).mean(0)
    for _ in range(_MOST_SPREADS):
        if _found(model) >= _FEWEST_BOXES:
            return
        with torch.no_grad():
            for layer in layers:
                layer.weight.mul_(2)
                layer.bias.mul_(2)
    raise ValueError(f"fewer than {_FEWEST_BOXES} boxes survive the threshold after {_MOST_SPREADS} doublings")


def _found(model: nn.Module) -> int:
    """The number of boxes that survive the threshold."""
    with torch.no_grad():
        return len(model(_image())[0]["boxes"])


def _image() -> list[torch.Tensor]:
    return [torch.rand(3, 80, 100)]


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
