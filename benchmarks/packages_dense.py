"""Segmentation, medical images and diffusion: segmentation-models-pytorch, MONAI, nnU-Net and diffusers."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from models_of_vision import without_zeros
from packages_example import BATCH, IMAGE, VOLUME, Example, Factory, images
from torch import nn

__all__ = ["MODULES"]


def _smp(name: str, **options: Any) -> Example:
    import segmentation_models_pytorch as smp

    chosen = {"encoder_name": "mobilenet_v2", **options}
    return images(getattr(smp, name)(encoder_weights=None, classes=3, **chosen), 64, 96)


def _volume(model: nn.Module, size: int, *, channels: int = 1) -> Example:
    return Example(model.eval(), (torch.rand(1, channels, size, size, size),), {}, (VOLUME,))


def _monai_unet() -> Example:
    from monai.networks.nets import UNet

    return _volume(UNet(3, 1, 2, channels=(8, 16, 32), strides=(2, 2), num_res_units=2), 24)


def _monai_swin_unetr() -> Example:
    from monai.networks.nets import SwinUNETR

    model = SwinUNETR(1, 2, depths=(1, 1, 1, 1), num_heads=(1, 2, 4, 8), feature_size=12, window_size=4)
    return _volume(model, 64)


def _monai_dyn_unet() -> Example:
    from monai.networks.nets import DynUNet

    model = DynUNet(2, 1, 2, [3, 3, 3], [1, 2, 2], [2, 2], filters=[8, 16, 32], res_block=True)
    return images(model, 32, 48, channels=1)


def _monai_diffusion() -> Example:
    from monai.networks.nets import DiffusionModelUNet

    model = DiffusionModelUNet(
        2,
        1,
        1,
        num_res_blocks=1,
        channels=(16, 16),
        attention_levels=(False, True),
        norm_num_groups=8,
        num_head_channels=8,
    )
    args = (torch.randn(2, 1, 16, 24), torch.tensor([3, 70]))
    return Example(without_zeros(model.eval()), args, {}, (IMAGE, BATCH))


def _monai_voxelmorph() -> Example:
    from monai.networks.nets import VoxelMorph

    args = (torch.rand(1, 1, 32, 48), torch.rand(1, 1, 32, 48))
    model = without_zeros(VoxelMorph(spatial_dims=2).eval())
    return Example(model, args, {}, ({0: "batch"}, {0: "batch"}))


class _SlidingWindow(nn.Module):
    """MONAI's inference of a large image, window by window."""

    def __init__(self) -> None:
        from monai.inferers import SlidingWindowInferer

        super().__init__()
        self.network = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 2, 1))
        self.inferer = SlidingWindowInferer((16, 16), sw_batch_size=4, overlap=0.25, mode="gaussian")

    def forward(self, x: torch.Tensor) -> Any:
        """Images to class scores."""
        return self.inferer(x, self.network)


def _monai_sliding() -> Example:
    return Example(_SlidingWindow().eval(), (torch.rand(1, 1, 32, 40),), {}, (BATCH,))


def _nnunet(name: str, **options: Any) -> Example:
    from dynamic_network_architectures.architectures import unet

    model = getattr(unet, name)(
        input_channels=1,
        n_stages=3,
        features_per_stage=[8, 16, 32],
        conv_op=nn.Conv3d,
        kernel_sizes=3,
        strides=[1, 2, 2],
        num_classes=2,
        n_conv_per_stage_decoder=1,
        norm_op=nn.InstanceNorm3d,
        norm_op_kwargs={"affine": True},
        nonlin=nn.LeakyReLU,
        conv_bias=True,
        **options,
    )
    return _volume(model, 16)


def _unet2d() -> Example:
    from diffusers import UNet2DModel

    model = UNet2DModel(
        sample_size=16,
        block_out_channels=(16, 32),
        layers_per_block=1,
        norm_num_groups=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )
    return Example(model.eval(), (torch.randn(2, 3, 16, 24), torch.tensor([10, 500])), {}, (IMAGE, BATCH))


_CONDITIONED: dict[str, Any] = {
    "block_out_channels": (16, 32),
    "layers_per_block": 1,
    "norm_num_groups": 8,
    "attention_head_dim": 8,
    "cross_attention_dim": 24,
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
}


def _unet2d_condition() -> Example:
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(sample_size=16, up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), **_CONDITIONED)
    args = (torch.randn(2, 4, 16, 24), torch.tensor([10, 500]), torch.randn(2, 7, 24))
    return Example(model.eval(), args, {}, (IMAGE, BATCH, {0: "batch", 1: "tokens"}))


def _controlnet() -> Example:
    from diffusers import ControlNetModel

    model = without_zeros(ControlNetModel(conditioning_embedding_out_channels=(8, 16), **_CONDITIONED).eval())
    args = (torch.randn(2, 4, 16, 16), torch.tensor([10, 500]), torch.randn(2, 7, 24), torch.rand(2, 3, 32, 32))
    return Example(model, args, {}, (BATCH, BATCH, {0: "batch", 1: "tokens"}, BATCH))


def _autoencoder() -> Example:
    from diffusers import AutoencoderKL

    model = AutoencoderKL(
        block_out_channels=(16, 32),
        norm_num_groups=8,
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
    )
    return images(model, 32, 48)


def _dit() -> Example:
    from diffusers import DiTTransformer2DModel

    model = DiTTransformer2DModel(
        num_attention_heads=2, attention_head_dim=16, num_layers=2, sample_size=16, num_embeds_ada_norm=50
    )
    inputs = {
        "hidden_states": torch.randn(2, 4, 16, 16),
        "timestep": torch.tensor([10, 500]),
        "class_labels": torch.tensor([3, 7]),
    }
    return Example(without_zeros(model.eval()), (), inputs, dict.fromkeys(inputs, BATCH))


def _sd3() -> Example:
    from diffusers import SD3Transformer2DModel

    model = SD3Transformer2DModel(
        sample_size=16,
        in_channels=4,
        out_channels=4,
        num_layers=2,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=24,
        caption_projection_dim=32,
        pooled_projection_dim=20,
        pos_embed_max_size=32,
    )
    inputs = {
        "hidden_states": torch.randn(2, 4, 16, 24),
        "encoder_hidden_states": torch.randn(2, 7, 24),
        "pooled_projections": torch.randn(2, 20),
        "timestep": torch.tensor([10, 500]),
    }
    dynamic = {
        "hidden_states": IMAGE,
        "encoder_hidden_states": {0: "batch", 1: "tokens"},
        "pooled_projections": BATCH,
        "timestep": BATCH,
    }
    return Example(without_zeros(model.eval()), (), inputs, dynamic)


def _flux() -> Example:
    from diffusers import FluxTransformer2DModel

    model = FluxTransformer2DModel(
        in_channels=4,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=24,
        pooled_projection_dim=20,
        axes_dims_rope=(4, 4, 8),
    )
    positions = torch.stack(torch.meshgrid(torch.zeros(1), torch.arange(3.0), torch.arange(4.0), indexing="ij"), -1)
    inputs = {
        "hidden_states": torch.randn(2, 12, 4),
        "encoder_hidden_states": torch.randn(2, 7, 24),
        "pooled_projections": torch.randn(2, 20),
        "timestep": torch.tensor([0.1, 0.7]),
        "img_ids": positions.reshape(12, 3),
        "txt_ids": torch.zeros(7, 3),
    }
    dynamic = {
        "hidden_states": {0: "batch", 1: "pixels"},
        "encoder_hidden_states": {0: "batch", 1: "tokens"},
        "pooled_projections": BATCH,
        "timestep": BATCH,
        "img_ids": {0: "pixels"},
        "txt_ids": {0: "tokens"},
    }
    return Example(without_zeros(model.eval()), (), inputs, dynamic)


MODULES: dict[str, Factory] = {
    "segmentation-models-pytorch/Unet": partial(_smp, "Unet"),
    "segmentation-models-pytorch/DeepLabV3Plus": partial(_smp, "DeepLabV3Plus"),
    "segmentation-models-pytorch/Segformer": partial(_smp, "Segformer"),
    "segmentation-models-pytorch/UPerNet": partial(_smp, "UPerNet"),
    "segmentation-models-pytorch/UnetPlusPlus, timm encoder": partial(
        _smp, "UnetPlusPlus", encoder_name="tu-mobilenetv3_small_050"
    ),
    "monai/UNet": _monai_unet,
    "monai/SwinUNETR": _monai_swin_unetr,
    "monai/DynUNet": _monai_dyn_unet,
    "monai/DiffusionModelUNet": _monai_diffusion,
    "monai/VoxelMorph": _monai_voxelmorph,
    "monai/SlidingWindowInferer": _monai_sliding,
    "dynamic-network-architectures/ResidualEncoderUNet": partial(_nnunet, "ResidualEncoderUNet", n_blocks_per_stage=1),
    "diffusers/UNet2DModel": _unet2d,
    "diffusers/UNet2DConditionModel": _unet2d_condition,
    "diffusers/ControlNetModel": _controlnet,
    "diffusers/AutoencoderKL": _autoencoder,
    "diffusers/DiTTransformer2DModel": _dit,
    "diffusers/SD3Transformer2DModel": _sd3,
    "diffusers/FluxTransformer2DModel": _flux,
}
