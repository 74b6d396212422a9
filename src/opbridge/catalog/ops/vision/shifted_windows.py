"""Swin Transformers for images of dynamic size: attention in shifted windows, and the paddings around it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite
from opbridge.torch_graph.padded_sizes import lacking

_OTHER_REGION = -100.0
"""What is added to the attention between regions that were not neighbours before the shift."""
_MODELS = "transformers.models"
_SWIN = f"{_MODELS}.swin.modeling_swin.Swin"
_DONUT = f"{_MODELS}.donut.modeling_donut_swin.DonutSwin"
_MASKFORMER = f"{_MODELS}.maskformer.modeling_maskformer_swin.MaskFormerSwin"
_SWIN_V2 = f"{_MODELS}.swinv2.modeling_swinv2.Swinv2"
_SWIN_2SR = f"{_MODELS}.swin2sr.modeling_swin2sr.Swin2SR"
_FOCALNET = f"{_MODELS}.focalnet.modeling_focalnet.FocalNet"
_CLAP = f"{_MODELS}.clap.modeling_clap.ClapAudio"


@rewrite("torchvision.models.swin_transformer.shifted_window_attention")
def shifted_window_attention(
    original: Callable[..., Tensor],
    input: Tensor,
    qkv_weight: Tensor,
    proj_weight: Tensor,
    relative_position_bias: Tensor,
    window_size: Sequence[int],
    num_heads: int,
    shift_size: Sequence[int],
    attention_dropout: float = 0.0,
    dropout: float = 0.0,
    qkv_bias: Tensor | None = None,
    proj_bias: Tensor | None = None,
    logit_scale: Tensor | None = None,
    training: bool = True,
) -> Any:
    """Attention of images (N, H, W, C) in windows: Swin Transformer, and its version 2 if there is a logit_scale.

    torchvision asks in Python whether an image is larger than a window. Here, the shift of a single window is 0, and
    regions that a shift of 0 separates are in different windows.
    """
    height, width, channels = input.shape[1:]
    if _are_constant(height, width):
        return NotImplemented
    x = F.pad(input, (0, 0, 0, lacking(width, window_size[1]), 0, lacking(height, window_size[0])))
    padded = x.shape[1:3]
    down, across = padded[0] // window_size[0], padded[1] // window_size[1]
    shifts: list[Any] = [
        shift * torch.sym_min(count - 1, 1) for shift, count in zip(shift_size, (down, across), strict=True)
    ]
    if any(shift_size):
        x = _rolled(x, shifts)
    windows = (-1, down, window_size[0], across, window_size[1])
    in_window = window_size[0] * window_size[1]
    x = x.reshape(*windows, channels).transpose(2, 3).reshape(-1, in_window, channels)

    if logit_scale is not None and qkv_bias is not None:
        query, _, value = qkv_bias.chunk(3)
        qkv_bias = torch.cat([query, torch.zeros_like(query), value])
    qkv = F.linear(x, qkv_weight, qkv_bias).reshape(-1, in_window, 3, num_heads, channels // num_heads)
    query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind()
    if logit_scale is not None:
        weights = F.normalize(query, dim=-1) @ F.normalize(key, dim=-1).transpose(-2, -1)
        weights = weights * logit_scale.clamp(max=math.log(100.0)).exp()
    else:
        weights = (query * (channels // num_heads) ** -0.5) @ key.transpose(-2, -1)
    weights = weights + relative_position_bias
    if any(shift_size):
        mask = _mask(padded, window_size, shifts, weights)
        by_image = weights.reshape(-1, down * across, num_heads, in_window, in_window)
        weights = (by_image + mask[:, None]).reshape(-1, num_heads, in_window, in_window)
    weights = F.dropout(weights.softmax(-1), attention_dropout, training)

    x = F.linear((weights @ value).transpose(1, 2).reshape(-1, in_window, channels), proj_weight, proj_bias)
    x = F.dropout(x, dropout, training)
    x = x.reshape(-1, down, across, *window_size, channels).transpose(2, 3).reshape(-1, *padded, channels)
    if any(shift_size):
        x = _rolled(x, [size - shift for size, shift in zip(padded, shifts, strict=True)])
    return x[:, :height, :width]


def _rolled(x: Tensor, shifts: Sequence[Any]) -> Tensor:
    """Images (N, H, W, C) moved up and to the left; what leaves comes back at the other side."""
    for axis, shift in enumerate(shifts, 1):
        size = x.shape[axis]
        x = x.index_select(axis, (torch.arange(size, device=x.device) + shift) % size)
    return x


def _mask(sizes: Sequence[int], windows: Sequence[int], shifts: Sequence[Any], like: Tensor) -> Tensor:
    """What is added to the attention in each window of a shifted image: (windows, places, places)."""
    rows, columns = (_regions(*axis, like.device) for axis in zip(sizes, windows, shifts, strict=True))
    regions = (3 * rows[:, None] + columns).reshape(sizes[0] // windows[0], windows[0], -1, windows[1])
    regions = regions.transpose(1, 2).reshape(-1, windows[0] * windows[1])
    return torch.where(regions[:, None] == regions[:, :, None], 0.0, _OTHER_REGION).to(like.dtype)


def _regions(size: int, window: int, shift: Any, device: torch.device) -> Tensor:
    """The region of each row of a shifted image: all windows but the last, its rest, and what was shifted into it."""
    place = torch.arange(size, device=device)
    return (place >= size - window).to(torch.int64) + (place >= size - shift)


@rewrite(f"{_SWIN}PatchEmbeddings.maybe_pad")
@rewrite(f"{_DONUT}PatchEmbeddings.maybe_pad")
@rewrite(f"{_MASKFORMER}PatchEmbeddings.maybe_pad")
@rewrite(f"{_SWIN_V2}PatchEmbeddings.maybe_pad")
@rewrite(f"{_FOCALNET}PatchEmbeddings.maybe_pad")
def pad_image(original: Callable[..., Tensor], self: Any, pixel_values: Tensor, height: int, width: int) -> Any:
    """Pad images (.., H, W) to multiples of the patches, by 0 if they are; transformers asks in Python."""
    if _are_constant(height, width):
        return NotImplemented
    return F.pad(pixel_values, (0, lacking(width, self.patch_size[1]), 0, lacking(height, self.patch_size[0])))


@rewrite(f"{_SWIN}PatchMerging.maybe_pad")
@rewrite(f"{_DONUT}PatchMerging.maybe_pad")
@rewrite(f"{_MASKFORMER}PatchMerging.maybe_pad")
@rewrite(f"{_SWIN_V2}PatchMerging.maybe_pad")
@rewrite(f"{_SWIN_2SR}PatchMerging.maybe_pad")
@rewrite(f"{_CLAP}PatchMerging.maybe_pad")
def pad_patches(original: Callable[..., Tensor], self: Any, input_feature: Tensor, height: int, width: int) -> Any:
    """Pad patches (N, H, W, C) to even sizes, by 0 if they are."""
    if _are_constant(height, width):
        return NotImplemented
    return F.pad(input_feature, (0, 0, 0, lacking(width, 2), 0, lacking(height, 2)))


@rewrite(f"{_SWIN}Layer.maybe_pad")
@rewrite(f"{_DONUT}Layer.maybe_pad")
@rewrite(f"{_MASKFORMER}Layer.maybe_pad")
@rewrite(f"{_SWIN_V2}Layer.maybe_pad")
@rewrite(f"{_SWIN_2SR}Layer.maybe_pad")
@rewrite(f"{_CLAP}Layer.maybe_pad")
def pad_windows(original: Callable[..., Any], self: Any, hidden_states: Tensor, height: int, width: int) -> Any:
    """Pad patches (N, H, W, C) to multiples of the windows.

    The layer cuts the padding off if the numbers that are returned with it are above 0. Here they always are.
    """
    window = self.window_size
    if _are_constant(height, width) or not isinstance(window, int):
        return NotImplemented
    return F.pad(hidden_states, (0, 0, 0, lacking(width, window), 0, lacking(height, window))), (0, 0, 0, 1, 0, 1)


@rewrite(f"{_SWIN}Layer.set_shift_and_window_size")
def keep_window(original: Callable[..., None], self: Any, input_resolution: Sequence[int]) -> Any:
    """Leave the shift to :func:`shift_cyclically`. transformers sets it to 0 if an image is one window high or wide."""
    return NotImplemented if _are_constant(*input_resolution) else None


@rewrite(f"{_SWIN}Layer.cyclic_shift")
def shift_cyclically(original: Callable[..., Tensor], self: Any, hidden_states: Tensor, reverse: bool = False) -> Any:
    """Shift images (N, H, W, C) of whole windows."""
    sizes = hidden_states.shape[1:3]
    if _are_constant(*sizes) or not self.shift_size:
        return NotImplemented
    shift = _shift_of(self, sizes)
    return _rolled(hidden_states, [size - shift for size in sizes] if reverse else [shift, shift])


@rewrite(f"{_SWIN}Layer.get_attn_mask")
def mask_regions(
    original: Callable[..., Any], self: Any, height: int, width: int, dtype: torch.dtype, device: torch.device
) -> Any:
    """What is added to the attention in each window: (windows, places, places)."""
    if _are_constant(height, width) or not self.shift_size:
        return NotImplemented
    shift, window = _shift_of(self, (height, width)), self.window_size
    return _mask((height, width), (window, window), (shift, shift), torch.empty((), dtype=dtype, device=device))


@rewrite("timm.models.swin_transformer.SwinTransformerBlock.get_attn_mask")
@rewrite("timm.models.swin_transformer_v2.SwinTransformerV2Block.get_attn_mask")
def mask_padded(original: Callable[..., Any], self: Any, x: Tensor | None = None, *arguments: Any, **named: Any) -> Any:
    """What is added to the attention in each window of padded images (N, H, W, C): (windows, places, places)."""
    if x is None or _are_constant(*x.shape[1:3]) or not any(self.shift_size):
        return NotImplemented
    return _mask(x.shape[1:3], self.window_size, self.shift_size, x)


def _shift_of(layer: Any, sizes: Sequence[int]) -> Any:
    return layer.shift_size * torch.sym_min(torch.sym_min(*sizes) // layer.window_size - 1, 1)


def _are_constant(height: Any, width: Any) -> bool:
    return isinstance(height, int) and isinstance(width, int)
