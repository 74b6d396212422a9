"""Vision: torchvision, timm, kornia, ultralytics, docTR and others. One function makes one module."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from packages_example import BATCH, CLIP, IMAGE, Example, Factory, Function, images
from torch import nn

__all__ = ["MODULES"]


def _timm(name: str, size: int, *, dynamic: dict[int, str] = BATCH, **options: Any) -> Example:
    import timm

    model = timm.create_model(name, pretrained=False, **options).eval()
    return Example(model, (torch.randn(2, 3, size, size),), {}, (dynamic,))


def _gemma4() -> Example:
    import timm

    model = timm.create_model("gemma4_vit_167m", pretrained=False, embed_dim=48, depth=2, num_heads=2).eval()
    return Example(model, (torch.rand(2, 3, 96, 96),), {}, (BATCH,))


def _mvit() -> Example:
    from torchvision.models.video.mvit import MSBlockConfig, MViT

    blocks = [
        MSBlockConfig(1, 16, 16, [3, 3, 3], [3, 3, 3], [1, 1, 1], [1, 4, 4]),
        MSBlockConfig(2, 16, 32, [3, 3, 3], [3, 3, 3], [1, 2, 2], [1, 2, 2]),
        MSBlockConfig(2, 32, 32, [3, 3, 3], [3, 3, 3], [1, 1, 1], [1, 2, 2]),
    ]
    model = MViT(
        spatial_size=(64, 64),
        temporal_size=8,
        block_setting=blocks,
        residual_pool=True,
        residual_with_cls_embed=False,
        rel_pos_embed=True,
        proj_after_attn=True,
        num_classes=10,
    )
    return Example(model.eval(), (torch.randn(1, 3, 8, 64, 64),), {}, (BATCH,))


def _swin3d() -> Example:
    from torchvision.models.video.swin_transformer import SwinTransformer3d

    model = SwinTransformer3d(
        patch_size=[2, 4, 4], embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=[2, 4, 4], num_classes=10
    )
    return Example(model.eval(), (torch.randn(2, 3, 8, 64, 64),), {}, (CLIP,))


def _faster_rcnn() -> Example:
    from torchvision.models.detection import fasterrcnn_mobilenet_v3_large_320_fpn as make

    model = make(weights=None, weights_backbone=None, num_classes=5, min_size=96, max_size=160, box_score_thresh=0.05)
    return Example(model.eval(), ([torch.rand(3, 96, 128)],), {}, ([{1: "height", 2: "width"}],))


class _RoiHead(nn.Module):
    """A detection head: features and boxes to class scores."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Linear(8 * 5 * 5, 4)

    def forward(self, features: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
        """Boxes are (image, x1, y1, x2, y2)."""
        from torchvision.ops import roi_align

        pooled = roi_align(features, boxes, (5, 5), spatial_scale=0.25, sampling_ratio=2, aligned=True)
        scores: torch.Tensor = self.scores(pooled.flatten(1))
        return scores


def _roi_head() -> Example:
    corners = torch.rand(6, 2) * 40
    images_of_boxes = torch.tensor([0.0, 0, 0, 1, 1, 1])[:, None]
    boxes = torch.cat([images_of_boxes, corners, corners + 8 + 30 * torch.rand(6, 2)], 1)
    features = {0: "batch", 2: "height", 3: "width"}
    return Example(_RoiHead().eval(), (torch.randn(2, 8, 24, 24), boxes), {}, (features, {0: "boxes"}))


def _deform_conv() -> Example:
    from torchvision.ops import DeformConv2d

    shapes = ((2, 4, 20, 24), (2, 18, 20, 24), (2, 9, 20, 24))
    args = tuple(torch.rand(shape) for shape in shapes)
    return Example(DeformConv2d(4, 6, 3, padding=1).eval(), args, {}, (IMAGE, IMAGE, IMAGE))


def _preprocessing() -> Example:
    from torchvision.transforms import v2

    steps = [v2.Resize(64, antialias=True), v2.CenterCrop(56), v2.Normalize([0.5, 0.4, 0.3], [0.2, 0.25, 0.3])]
    return images(nn.Sequential(*steps), 96, 120)


def _kornia_rotate() -> Example:
    from kornia.geometry import rotate

    args = (torch.rand(2, 3, 32, 40), torch.tensor([30.0, -75.0]))
    return Example(Function(rotate).eval(), args, {}, (IMAGE, BATCH))


def _kornia_clahe() -> Example:
    from kornia.enhance import equalize_clahe

    return images(Function(equalize_clahe, clip_limit=20.0, grid_size=(4, 4)), 64, 80, channels=1)


def _kornia_keynet() -> Example:
    from kornia.feature import KeyNet

    return images(KeyNet(pretrained=False), 64, 80, channels=1, batch=1)


def _kornia_canny() -> Example:
    from kornia.filters import Canny

    return images(Canny(), 40, 48)


def _kornia_warp() -> Example:
    from kornia.geometry import warp_perspective

    matrix = torch.eye(3).repeat(2, 1, 1) + 0.02 * torch.rand(2, 3, 3)
    args = (torch.rand(2, 3, 32, 40), matrix)
    return Example(Function(warp_perspective, dsize=(28, 36)).eval(), args, {}, (IMAGE, BATCH))


def _kornia_homography() -> Example:
    from kornia.geometry.homography import find_homography_dlt

    points = torch.rand(2, 9, 2) * 20
    moved = points * 1.1 + 2 + 0.1 * torch.rand(2, 9, 2)
    dynamic = {0: "batch", 1: "points"}
    return Example(Function(find_homography_dlt).eval(), (points, moved), {}, (dynamic, dynamic))


def _kornia_hardnet() -> Example:
    from kornia.feature import HardNet

    return Example(HardNet(pretrained=False).eval(), (torch.rand(3, 1, 32, 32),), {}, ({0: "patches"},))


def _kornia_disk() -> Example:
    from kornia.feature import DISK

    class Heatmap(nn.Module):
        """The dense outputs of DISK: a heatmap and descriptors."""

        def __init__(self) -> None:
            super().__init__()
            self.disk = DISK(desc_dim=16)

        def forward(self, images: torch.Tensor) -> Any:
            """Images to (heatmap, descriptors)."""
            return self.disk.heatmap_and_dense_descriptors(images)

    return images(Heatmap(), 64, 96, batch=1)


def _yolo(name: str, *, kind: str = "DetectionModel", size: int = 64) -> Example:
    from ultralytics.nn import tasks

    model = getattr(tasks, kind)(name, ch=3, nc=6, verbose=False).eval()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return images(model, size, size + 32, batch=1)


def _doctr(family: str, name: str, height: int, width: int, **options: Any) -> Example:
    from doctr import models

    model = getattr(getattr(models, family), name)(pretrained=False, pretrained_backbone=False, **options).eval()
    dynamic = BATCH if family == "recognition" else IMAGE
    batch = 1 if family == "recognition" else 2
    return Example(model, (torch.rand(batch, 3, height, width),), {}, (dynamic,))


def _facenet() -> Example:
    from facenet_pytorch import InceptionResnetV1

    return Example(InceptionResnetV1(pretrained=None).eval(), (torch.rand(2, 3, 96, 96),), {}, (BATCH,))


def _efficientnet() -> Example:
    from efficientnet_pytorch import EfficientNet

    model = EfficientNet.from_name("efficientnet-b0", num_classes=10, image_size=96)
    return Example(model.eval(), (torch.rand(2, 3, 96, 96),), {}, (BATCH,))


def _open_clip(*, image_size: int = 32) -> Example:
    from open_clip.model import CLIP, CLIPTextCfg, CLIPVisionCfg

    vision = CLIPVisionCfg(layers=2, width=32, head_width=16, patch_size=8, image_size=image_size)
    text = CLIPTextCfg(context_length=12, vocab_size=60, width=32, heads=2, layers=2)
    model = CLIP(24, vision, text).eval()
    args = (torch.rand(2, 3, image_size, image_size), torch.randint(1, 60, (3, 12)))
    return Example(model, args, {}, ({0: "images"}, {0: "texts"}))


def _vit_pytorch() -> Example:
    from vit_pytorch import SimpleViT

    model = SimpleViT(image_size=32, patch_size=8, num_classes=5, dim=32, depth=2, heads=2, mlp_dim=48)
    return Example(model.eval(), (torch.rand(2, 3, 32, 32),), {}, (BATCH,))


def _sam_encoder() -> Example:
    from segment_anything.modeling import ImageEncoderViT

    model = ImageEncoderViT(
        img_size=64,
        patch_size=8,
        embed_dim=32,
        depth=2,
        num_heads=2,
        out_chans=16,
        use_rel_pos=True,
        window_size=3,
        global_attn_indexes=(1,),
    )
    return Example(model.eval(), (torch.rand(1, 3, 64, 64),), {}, (BATCH,))


def _sam_decoder() -> Example:
    from segment_anything.modeling import ImageEncoderViT, MaskDecoder, PromptEncoder, Sam, TwoWayTransformer
    from segment_anything.utils.onnx import SamOnnxModel

    sam = Sam(
        ImageEncoderViT(img_size=64, patch_size=8, embed_dim=16, depth=1, num_heads=2, out_chans=16),
        PromptEncoder(16, (8, 8), (64, 64), 4),
        MaskDecoder(transformer_dim=16, transformer=TwoWayTransformer(2, 16, 2, 32), iou_head_hidden_dim=16),
    )
    inputs = {
        "image_embeddings": torch.randn(1, 16, 8, 8),
        "point_coords": torch.rand(1, 5, 2) * 64,
        "point_labels": torch.tensor([[0.0, 1, 1, 0, 1]]),
        "mask_input": torch.randn(1, 1, 32, 32),
        "has_mask_input": torch.tensor([1.0]),
        "orig_im_size": torch.tensor([48.0, 64.0]),
    }
    dynamic: dict[str, Any] = dict.fromkeys(inputs)
    dynamic.update(point_coords={1: "points"}, point_labels={1: "points"})
    return Example(SamOnnxModel(sam, return_single_mask=True).eval(), (), inputs, dynamic)


def _esrgan() -> Example:
    from spandrel.architectures.ESRGAN import ESRGAN

    return images(ESRGAN(in_nc=12, num_filters=16, num_blocks=2, scale=2, shuffle_factor=2), 24, 32)


def _swin_ir() -> Example:
    from spandrel.architectures.SwinIR import SwinIR

    model = SwinIR(
        img_size=16, embed_dim=24, depths=[2], num_heads=[2], window_size=4, upscale=2, upsampler="pixelshuffle"
    )
    return images(model, 16, 24)


def _lama() -> Example:
    from spandrel.architectures.LaMa import LaMa

    args = (torch.rand(1, 3, 48, 64), (torch.rand(1, 1, 48, 64) > 0.7).float())
    return Example(LaMa(in_nc=4).eval(), args, {}, (IMAGE, IMAGE))


def _lightly() -> Example:
    import timm
    from lightly.models.modules import MaskedVisionTransformerTIMM

    vit = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, depth=2, embed_dim=32, num_heads=2)
    return Example(MaskedVisionTransformerTIMM(vit).eval(), (torch.rand(2, 3, 32, 32),), {}, (BATCH,))


MODULES: dict[str, Factory] = {
    "timm/vit_tiny, any image size": partial(
        _timm, "vit_tiny_patch16_224", 64, dynamic=IMAGE, depth=2, img_size=64, dynamic_img_size=True
    ),
    "timm/gemma4_vit": _gemma4,
    "timm/naflexvit": partial(_timm, "naflexvit_base_patch16_gap", 64, depth=2, embed_dim=48, num_heads=2),
    "timm/mobilenetv4_conv_small": partial(_timm, "mobilenetv4_conv_small", 64, dynamic=IMAGE),
    "timm/fastvit_t8": partial(_timm, "fastvit_t8", 64, dynamic=IMAGE),
    "torchvision/MViT": _mvit,
    "torchvision/SwinTransformer3d": _swin3d,
    "torchvision/fasterrcnn_mobilenet": _faster_rcnn,
    "torchvision/roi_align head": _roi_head,
    "torchvision/DeformConv2d": _deform_conv,
    "torchvision/transforms: resize, crop, normalize": _preprocessing,
    "kornia/rotate": _kornia_rotate,
    "kornia/equalize_clahe": _kornia_clahe,
    "kornia/KeyNet": _kornia_keynet,
    "kornia/Canny": _kornia_canny,
    "kornia/warp_perspective": _kornia_warp,
    "kornia/find_homography_dlt": _kornia_homography,
    "kornia/HardNet": _kornia_hardnet,
    "kornia/DISK": _kornia_disk,
    "ultralytics/yolo11n": partial(_yolo, "yolo11n.yaml"),
    "ultralytics/yolov8n-seg": partial(_yolo, "yolov8n-seg.yaml", kind="SegmentationModel"),
    "ultralytics/yolo11n-pose": partial(_yolo, "yolo11n-pose.yaml", kind="PoseModel"),
    "ultralytics/yolov10n": partial(_yolo, "yolov10n.yaml"),
    "ultralytics/yolo26n": partial(_yolo, "yolo26n.yaml"),
    "ultralytics/yolov8n-rtdetr": partial(_yolo, "yolov8n-rtdetr.yaml", kind="RTDETRDetectionModel"),
    "python-doctr/parseq": partial(_doctr, "recognition", "parseq", 32, 128, exportable=True),
    "python-doctr/crnn_mobilenet_v3_small": partial(
        _doctr, "recognition", "crnn_mobilenet_v3_small", 32, 128, exportable=True
    ),
    "python-doctr/db_mobilenet_v3_large": partial(
        _doctr, "detection", "db_mobilenet_v3_large", 64, 96, exportable=True
    ),
    "python-doctr/fast_tiny": partial(_doctr, "detection", "fast_tiny", 64, 96, exportable=True),
    "facenet-pytorch/InceptionResnetV1": _facenet,
    "efficientnet-pytorch/efficientnet-b0": _efficientnet,
    "open-clip-torch/CLIP": _open_clip,
    "vit-pytorch/SimpleViT": _vit_pytorch,
    "segment-anything/ImageEncoderViT": _sam_encoder,
    "segment-anything/SamOnnxModel": _sam_decoder,
    "spandrel/ESRGAN": _esrgan,
    "spandrel/SwinIR": _swin_ir,
    "spandrel/LaMa": _lama,
    "lightly/MaskedVisionTransformer": _lightly,
}
