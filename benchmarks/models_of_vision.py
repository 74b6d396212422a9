"""The models of torchvision and timm of model_zoo.py, with random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from model_example import BATCH, IMAGE, Example
from torch import nn

__all__ = ["MODELS", "without_zeros"]


def _spread(layer: nn.Module, factor: float) -> None:
    """Make a layer's outputs differ: random weights give all classes one score, and no box survives a threshold."""
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name.endswith("weight"):
                parameter.mul_(factor)


def without_zeros(model: nn.Module) -> nn.Module:
    """Give layers that begin as zeros other weights: ViT's last one would make 0 of whatever an engine computes."""
    for parameter in model.parameters():
        if not parameter.any():
            nn.init.normal_(parameter, std=0.05)
    return model


def _rcnn(name: str, **options: Any) -> Callable[[], Example]:
    def make() -> Example:
        from torchvision.models import detection

        model = getattr(detection, name)(
            weights=None,
            weights_backbone=None,
            min_size=96,
            max_size=160,
            rpn_pre_nms_top_n_test=60,
            rpn_post_nms_top_n_test=40,
            box_detections_per_img=20,
            **options,
        ).eval()
        _spread(model.rpn.head.cls_logits, 20)
        _spread(model.roi_heads.box_predictor.cls_score, 50)
        return Example(model, ([torch.rand(3, 80, 100)],), {}, ([IMAGE],))

    return make


def _one_stage(name: str, factor: float, **options: Any) -> Callable[[], Example]:
    def make() -> Example:
        from torchvision.models import detection

        model = getattr(detection, name)(weights=None, weights_backbone=None, **options).eval()
        head = model.head.classification_head
        _spread(getattr(head, "cls_logits", head), factor)
        return Example(model, ([torch.rand(3, 80, 100)],), {}, ([IMAGE],))

    return make


def _raft() -> Example:
    from torchvision.models.optical_flow import raft_small

    sides = [8 * torch.export.Dim(name, min=17) for name in ("height", "width")]
    frames = {2: sides[0], 3: sides[1]}
    model = _Raft(raft_small(weights=None).eval())
    return Example(model, (torch.rand(1, 3, 136, 152), torch.rand(1, 3, 136, 152)), {}, (frames, frames))


class _Raft(nn.Module):
    """RAFT with three steps instead of twelve."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        flow: torch.Tensor = self.model(first, second, num_flow_updates=3)[-1]
        return flow


def _torchvision(name: str, size: int) -> Callable[[], Example]:
    def make() -> Example:
        import torchvision

        model = without_zeros(torchvision.models.get_model(name, weights=None).eval())
        return Example(model, (torch.randn(2, 3, size, size),), {}, (BATCH,))

    return make


def _timm(name: str, size: int, **options: Any) -> Callable[[], Example]:
    def make() -> Example:
        import timm

        model = timm.create_model(name, pretrained=False, **options).eval()
        return Example(model, (torch.randn(2, 3, size, size),), {}, (BATCH,))

    return make


MODELS: dict[str, Callable[[], Example]] = {
    "fasterrcnn": _rcnn("fasterrcnn_resnet50_fpn", box_score_thresh=0.05),
    "maskrcnn": _rcnn("maskrcnn_resnet50_fpn", box_score_thresh=0.05),
    "keypointrcnn": _rcnn("keypointrcnn_resnet50_fpn", box_score_thresh=0.05),
    "retinanet": _one_stage(
        "retinanet_resnet50_fpn", 10, min_size=96, max_size=160, topk_candidates=50, detections_per_img=20
    ),
    "fcos": _one_stage("fcos_resnet50_fpn", 10, min_size=96, max_size=160, topk_candidates=50, detections_per_img=20),
    # A larger factor makes all scores 1: which boxes are the best would be anybody's choice.
    "ssd": _one_stage("ssd300_vgg16", 0.2, topk_candidates=50, detections_per_img=20),
    "ssdlite": _one_stage("ssdlite320_mobilenet_v3_large", 1e5, topk_candidates=50, detections_per_img=20),
    "raft": _raft,
    "swin_t": _torchvision("swin_t", 64),
    "swin_v2_t": _torchvision("swin_v2_t", 64),
    "maxvit_t": _torchvision("maxvit_t", 224),
    "vit_b_16": _torchvision("vit_b_16", 224),
    "swin_timm": _timm("swin_tiny_patch4_window7_224", 224),
    "beit_timm": _timm("beit_base_patch16_224", 224, depth=2),
    "maxvit_timm": _timm("maxvit_pico_rw_256", 256),
    "hiera": _timm("hiera_tiny_224", 224),
    "nest": _timm("nest_tiny_jx", 224),
    "twins": _timm("twins_svt_small", 224),
    "coat": _timm("coat_tiny", 224),
}
