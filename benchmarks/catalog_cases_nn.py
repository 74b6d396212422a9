"""The cases of layers and of vision, for ``catalog.py``: batches of images, volumes, sequences."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
import torch.nn.functional as F
from catalog_cases import Table, one, side, square
from torch import Tensor
from torchvision import ops
from torchvision.models.detection import _utils, roi_heads

__all__ = ["NN", "VISION"]


def _signal(n: int) -> Tensor:
    return torch.randn(4, 32, n // 128)


def _image(n: int, channels: int = 32) -> Tensor:
    return torch.randn(8, channels, *(side(n // (8 * channels)),) * 2)


def _volume(n: int, channels: int = 16) -> Tensor:
    return torch.randn(4, channels, *(round(math.cbrt(n / (4 * channels))),) * 3)


def _signals(n: int) -> tuple[Any, ...]:
    return (_signal(n),)


def _images(n: int) -> tuple[Any, ...]:
    return (_image(n),)


def _volumes(n: int) -> tuple[Any, ...]:
    return (_volume(n),)


def _norm(n: int) -> tuple[Any, ...]:
    return _image(n), torch.randn(32), torch.rand(32) + 0.5, torch.randn(32), torch.randn(32)


def _attention(n: int) -> tuple[Any, ...]:
    return tuple(torch.randn(1, 8, n // 4096, 64) for _ in range(3))


def _experts(n: int) -> tuple[Any, ...]:
    rows = n // 256
    return torch.randn(rows, 256), torch.randn(8, 256, 256), torch.arange(1, 9, dtype=torch.int32) * (rows // 8)


def _eight_bits(n: int) -> tuple[Any, ...]:
    a, b = (square(n // 4).to(torch.float8_e4m3fn) for _ in range(2))
    return a, b.t().contiguous().t(), torch.ones(()), torch.ones(())


def _grouped(x: Tensor, matrices: Tensor, ends: Tensor) -> Tensor:
    import transformers.integrations.moe  # noqa: F401 - it registers the operator

    return torch.ops.transformers.grouped_mm_fallback(x, matrices, ends)


def _ctc(n: int) -> tuple[Any, ...]:
    steps, batch, classes = n // 8192, 64, 128
    targets = torch.randint(1, classes, (batch, steps // 4))
    lengths = torch.full((batch,), steps), torch.full((batch,), steps // 4)
    return torch.randn(steps, batch, classes).log_softmax(-1), targets, *lengths


def _classes(n: int) -> tuple[Any, ...]:
    return torch.randn(n // 256, 256), torch.randn(1000, 256), torch.randint(0, 1000, (n // 256,))


def _linear_cross_entropy(reduction: str) -> Any:
    options = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=1024)
    return lambda x, w, t: F.linear_cross_entropy(x, w, t, reduction=reduction, options=options)


def _scaled_mm_v2(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor) -> Tensor:
    whole, no_swizzle = F.ScalingType.TensorWise, F.SwizzleType.NO_SWIZZLE
    return F.scaled_mm(a, b, [scale_a], [whole], [scale_b], [whole], [no_swizzle], [no_swizzle], None, torch.float32)


def _bags(n: int) -> tuple[Any, ...]:
    """A table, indices, and where every bag of 16 begins."""
    indices = n // 64
    return torch.randn(1000, 64), torch.randint(0, 1000, (indices,)), torch.arange(0, indices, 16)


def _steps(n: int) -> tuple[Any, ...]:
    """A sequence of 64 numbers for 64 steps of a batch, a state, and the parameters of one layer."""
    sequence, size = torch.randn(64, n // 4096, 64), 64
    weights = [torch.randn(size, size) / 8 for _ in range(2)] + [torch.randn(size) for _ in range(2)]
    return sequence, torch.zeros(1, sequence.shape[1], size), *weights


def _recurrent(name: str) -> Any:
    return lambda x, state, *parameters: getattr(torch, name)(x, state, parameters, True, 1, 0.0, False, False, False)


def _projected(n: int) -> tuple[Any, ...]:
    """What an LSTM takes whose 32 numbers are projected to 16 for each step."""
    sequence = torch.randn(64, n // 1024, 16)
    states = torch.zeros(1, sequence.shape[1], 16), torch.zeros(1, sequence.shape[1], 32)
    shapes = (128, 16), (128, 16), (128,), (128,), (16, 32)
    return sequence, *states, *(torch.randn(shape) / 4 for shape in shapes)


def _lstm(x: Tensor, hidden: Tensor, cell: Tensor, *parameters: Tensor) -> Any:
    return torch.lstm(x, (hidden, cell), parameters, True, 1, 0.0, False, False, False)


def _of_lengths(n: int) -> tuple[Any, ...]:
    sequence, _, *parameters = _steps(n)
    return sequence, torch.randint(1, 65, (sequence.shape[1],)), *parameters


def _padded(x: Tensor, lengths: Tensor, *parameters: Tensor) -> Any:
    import opbridge.catalog.formulas.padded_layer  # noqa: F401 - it registers the operator

    return torch.ops.opbridge.padded_layer(x, lengths, parameters, None, None, "RNN_TANH", False)


def _bytes(n: int) -> tuple[Any, ...]:
    return (torch.randint(0, 256, _image(n, 4).shape, dtype=torch.uint8),)


def _channels(n: int) -> tuple[Any, ...]:
    return square(n), torch.rand(side(n)) / 10 + 0.01, torch.zeros(side(n), dtype=torch.int32)


def _observed(n: int) -> tuple[Any, ...]:
    """A tensor, whether it is observed and quantized, its range, and its scale and zero point."""
    on = torch.ones(1, dtype=torch.long)
    limits = torch.tensor(-4.0), torch.tensor(4.0)
    return square(n), on, on.clone(), *limits, torch.tensor([0.03]), torch.zeros(1, dtype=torch.int32)


def _observed_and_quantized(*args: Tensor) -> Any:
    helper = torch.ops.aten._fused_moving_avg_obs_fq_helper_functional
    return helper(*args, 0.01, 0, 255, 0)


def _levels(*args: Any) -> Tensor:
    return torch.ops.quantized_decomposed.quantize_per_tensor(*args, -100, 100, torch.int8)


def _step(n: int) -> tuple[Any, ...]:
    return square(n), torch.tensor([0.03]), torch.zeros(1, dtype=torch.int32)


def _grid(images: Tensor) -> Tensor:
    return 2 * torch.rand(images.shape[0], *images.shape[2:], images.dim() - 2) - 1


def _smaller(images: Tensor) -> list[int]:
    return [5 * length // 8 for length in images.shape[2:]]


def _pads(name: str, rank: int) -> Any:
    return lambda x: getattr(torch.ops.aten, f"{name}_pad{rank}d")(x, (2, -1) * rank)


NN: Table = {
    "aten::_adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, 7), _images),
    "aten::_adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x, 5), _volumes),
    "aten::adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, 7), _images),
    "aten::adaptive_max_pool3d": (lambda x: F.adaptive_max_pool3d(x, 6), _volumes),
    "aten::avg_pool1d": (lambda x: F.avg_pool1d(x, 3), _signals),
    "aten::avg_pool2d": (lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), _images),
    "aten::avg_pool3d": (lambda x: F.avg_pool3d(x, 3, 2, 1, ceil_mode=True), _volumes),
    "aten::fractional_max_pool2d": (
        lambda x, u: F.fractional_max_pool2d(x, 3, output_ratio=(0.5, 0.5), _random_samples=u),
        lambda n: (_image(n), torch.rand(8, 32, 2)),
    ),
    "aten::fractional_max_pool3d": (
        lambda x, u: F.fractional_max_pool3d(x, 2, output_ratio=(0.5, 0.5, 0.5), _random_samples=u),
        lambda n: (_volume(n), torch.rand(4, 16, 3)),
    ),
    "aten::conv_transpose1d": (F.conv_transpose1d, lambda n: (_signal(n), torch.randn(32, 32, 3))),
    "aten::conv_transpose2d.input": (F.conv_transpose2d, lambda n: (_image(n), torch.randn(32, 32, 3, 3))),
    "aten::conv_transpose3d.input": (F.conv_transpose3d, lambda n: (_volume(n), torch.randn(16, 16, 3, 3, 3))),
    "aten::convolution": (
        lambda x, w, b: torch.convolution(x, w, b, [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
        lambda n: (_image(n), torch.randn(32, 32, 3, 3), torch.randn(32)),
    ),
    "aten::_native_batch_norm_legit_no_training": (
        lambda x, mean, var, w, b: F.batch_norm(x, mean, var, w, b),
        _norm,
    ),
    "aten::_native_batch_norm_legit.no_stats": (lambda x: F.batch_norm(x, None, None, training=True), _images),
    "aten::_native_batch_norm_legit_functional": (
        lambda x, mean, var, w, b: torch.ops.aten._native_batch_norm_legit_functional(
            x, w, b, mean, var, True, 0.1, 1e-5
        ),
        _norm,
    ),
    "aten::native_layer_norm": (
        lambda x, w, b: torch.native_layer_norm(x, w.shape, w, b, 1e-5),
        lambda n: (torch.randn(n // 256, 256), torch.randn(256), torch.randn(256)),
    ),
    "aten::scaled_dot_product_attention": (F.scaled_dot_product_attention, _attention),
    "aten::_scaled_dot_product_flash_attention_for_cpu": (
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu,
        _attention,
    ),
    "aten::_scaled_mm": (lambda a, b, s, t: torch._scaled_mm(a, b, s, t, out_dtype=torch.float32), _eight_bits),
    "aten::_scaled_mm_v2": (_scaled_mm_v2, _eight_bits),
    "transformers::grouped_mm_fallback": (
        _grouped,
        _experts,
    ),
    "aten::grid_sampler": (
        lambda x, grid: torch.grid_sampler(x, grid, 0, 0, False),
        lambda n: (_volume(n), _grid(_volume(n))),
    ),
    "aten::grid_sampler_3d": (
        lambda x, grid: torch.grid_sampler_3d(x, grid, 0, 0, False),
        lambda n: (_volume(n), _grid(_volume(n))),
    ),
    "aten::_upsample_bilinear2d_aa.default": (
        lambda x: F.interpolate(x, _smaller(x), mode="bilinear", align_corners=True, antialias=True),
        _images,
    ),
    "aten::_upsample_lanczos2d_aa.default": (
        lambda x: F.interpolate(x, _smaller(x), mode="lanczos", antialias=True),
        _images,
    ),
    "aten::_upsample_bicubic2d_aa.default": (
        lambda x: F.interpolate(x, _smaller(x), mode="bicubic", align_corners=True, antialias=True),
        _images,
    ),
    **{
        f"aten::{name}{rank}d.vec": (functools.partial(F.interpolate, scale_factor=1.7, mode=mode), images)
        for name, mode in (("upsample_nearest", "nearest"), ("_upsample_nearest_exact", "nearest-exact"))
        for rank, images in ((1, _signals), (2, _images), (3, _volumes))
    },
    **{
        f"aten::_upsample_nearest_exact{rank}d.default": (
            functools.partial(F.interpolate, scale_factor=2.0, mode="nearest-exact"),
            images,
        )
        for rank, images in ((1, _signals), (2, _images), (3, _volumes))
    },
    "aten::upsample_bilinear2d.vec opbridge::resize_bytes opbridge::ResizeBytes": (
        lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear"),
        _bytes,
    ),
    "aten::upsample_bicubic2d.vec opbridge::resize_bytes opbridge::ResizeBytes": (
        lambda x: F.interpolate(x, scale_factor=1.7, mode="bicubic"),
        _bytes,
    ),
    "aten::rnn_tanh.input": (_recurrent("rnn_tanh"), _steps),
    "aten::rnn_relu.input": (_recurrent("rnn_relu"), _steps),
    "aten::lstm.input": (_lstm, _projected),
    "opbridge::padded_layer": (_padded, _of_lengths),
    "aten::fake_quantize_per_tensor_affine_cachemask": (
        lambda x: torch.ops.aten.fake_quantize_per_tensor_affine_cachemask(x, 0.03, 0, -128, 127)[0],
        one,
    ),
    "aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams": (
        lambda *args: torch.ops.aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams(*args, -128, 127)[0],
        lambda n: (*_step(n), torch.ones(1, dtype=torch.long)),
    ),
    "aten::fake_quantize_per_channel_affine_cachemask": (
        lambda *args: torch.ops.aten.fake_quantize_per_channel_affine_cachemask(*args, 0, -128, 127)[0],
        _channels,
    ),
    "aten::_fused_moving_avg_obs_fq_helper_functional": (_observed_and_quantized, _observed),
    "quantized_decomposed::quantize_per_tensor.default": (lambda x: _levels(x, 0.03, 0), one),
    "quantized_decomposed::quantize_per_tensor.tensor": (
        lambda x, scale, zero: _levels(x, scale[0], zero[0]),
        _step,
    ),
    "aten::cross_entropy_loss": (
        lambda x, w, target: F.cross_entropy(x @ w.t(), target, label_smoothing=0.1),
        _classes,
    ),
    "aten::stft.default": (
        lambda x, window: torch.stft(x, 256, window=window, return_complex=True),
        lambda n: (torch.randn(8, n // 8), torch.hann_window(256)),
    ),
    "aten::hamming_window": (lambda x: x + torch.hamming_window(x.shape[0]), lambda n: (torch.randn(n),)),
    "aten::embedding_bag.padding_idx": (lambda w, i, o: F.embedding_bag(i, w, o, mode="sum"), _bags),
    "aten::embedding_bag": (lambda w, i, o: torch.embedding_bag(w, i, o)[0], _bags),
    "aten::_embedding_bag": (lambda w, i, o: torch.ops.aten._embedding_bag(w, i, o)[0], _bags),
    "aten::_embedding_bag_forward_only opbridge::EmbeddingBag": (
        lambda w, i, o: torch.ops.aten._embedding_bag_forward_only(w, i, o)[0],
        _bags,
    ),
    "aten::im2col": (lambda x: F.unfold(x, 3, padding=1), lambda n: (_image(n // 4),)),
    "aten::pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), _images),
    "aten::pixel_unshuffle": (
        lambda x: F.pixel_unshuffle(x, 2),
        lambda n: (F.interpolate(_image(n // 4), scale_factor=2.0),),
    ),
    "aten::pad aten::_pad_circular.default": (lambda x: F.pad(x, (2, 1, 2, 1), mode="circular"), _images),
    **{
        f"aten::reflection_pad{d}d": (_pads("reflection", d), make)
        for d, make in ((1, _signals), (2, _images), (3, _volumes))
    },
    **{
        f"aten::replication_pad{d}d": (_pads("replication", d), make)
        for d, make in ((1, _signals), (2, _images), (3, _volumes))
    },
    "aten::celu": (F.celu, one),
    "aten::elu": (F.elu, one),
    "aten::gelu": (F.gelu, one),
    "aten::selu": (F.selu, one),
    "aten::hardsigmoid": (F.hardsigmoid, one),
    "aten::hardswish": (F.hardswish, one),
    "aten::hardtanh": (F.hardtanh, one),
    "aten::softplus": (F.softplus, one),
    "aten::log_sigmoid": (F.logsigmoid, one),
    "aten::log_sigmoid_forward": (lambda x: torch.ops.aten.log_sigmoid_forward(x)[0], one),
    "aten::softmax.int": (lambda x: F.softmax(x, -1), one),
    "aten::log_softmax.int": (lambda x: F.log_softmax(x, -1), one),
    "aten::_pdist_forward opbridge::PDist": (torch.pdist, lambda n: (square(n // 4),)),
    "torch.nn.functional.ctc_loss": (F.ctc_loss, _ctc),
    "torch.ctc_loss": (torch.ctc_loss, _ctc),
    "torch.nn.functional.gaussian_nll_loss": (
        F.gaussian_nll_loss,
        lambda n: (square(n), square(n), square(n).abs() + 0.1),
    ),
    "torch.nn.functional.one_hot": (lambda x: F.one_hot(x, 100), lambda n: (torch.randint(0, 100, (n // 100,)),)),
    "torch_nn::_linear_cross_entropy_batch_chunked": (_linear_cross_entropy("mean"), _classes),
    "torch_nn::_linear_cross_entropy_batch_chunked_no_reduction": (
        _linear_cross_entropy("none"),
        _classes,
    ),
}


def _boxes(count: int) -> Tensor:
    corners = 200 * torch.rand(count, 2)
    return torch.cat([corners, corners + 5 + 40 * torch.rand(count, 2)], 1)


def _nms(n: int) -> tuple[Any, ...]:
    count = n // 1024
    return _boxes(count), torch.rand(count), torch.randint(0, 10, (count,)), 0.5


def _suppressed(boxes: Tensor, scores: Tensor, classes: Tensor, threshold: float) -> Tensor:
    return ops.boxes.batched_nms(boxes, scores, classes, threshold)


def _deformed(x: Tensor, offset: Tensor, weight: Tensor) -> Tensor:
    return ops.deform_conv2d(x, offset, weight, padding=1)


def _decoded(codes: Tensor, boxes: Tensor) -> Tensor:
    return _utils.BoxCoder((1.0, 1.0, 1.0, 1.0)).decode(codes, [boxes])


def _pasted(masks: Tensor, boxes: Tensor) -> Tensor:
    return roi_heads.paste_masks_in_image(masks, boxes, (256, 256))


def _pooled(fine: Tensor, coarse: Tensor, boxes: Tensor) -> Tensor:
    pool = ops.MultiScaleRoIAlign(["0", "1"], 7, 2)
    return pool({"0": fine, "1": coarse}, [boxes], [(256, 256)])


def _regions(n: int) -> tuple[Any, ...]:
    boxes = _boxes(n // 16384)
    return torch.randn(1, 98, 64, 64), torch.cat([torch.zeros(len(boxes), 1), boxes], 1)


def _rotated(n: int) -> Tensor:
    count = side(n // 256)
    return torch.cat([200 * torch.rand(count, 2), 5 + 40 * torch.rand(count, 2), 180 * torch.rand(count, 1)], 1)


VISION: Table = {
    "torchvision.ops.boxes.box_iou opbridge::rotated_overlaps opbridge::RotatedOverlaps": (
        lambda one, other: ops.box_iou(one, other, "cxcywhr"),
        lambda n: (_rotated(n), _rotated(n)),
    ),
    "torchvision.models.detection.roi_heads.heatmaps_to_keypoints": (
        lambda maps, boxes: roi_heads.heatmaps_to_keypoints(maps, boxes),
        lambda n: (torch.randn(n // 65536, 17, 56, 56), _boxes(n // 65536)),
    ),
    "torchvision::roi_pool": (lambda x, rois: ops.roi_pool(x, rois, 7, 0.25), _regions),
    "torchvision::ps_roi_pool": (lambda x, rois: ops.ps_roi_pool(x, rois, 7, 0.25), _regions),
    "torchvision::ps_roi_align": (lambda x, rois: ops.ps_roi_align(x, rois, 7, 0.25), _regions),
    "torchvision.ops.boxes.batched_nms": (_suppressed, _nms),
    "torchvision::deform_conv2d": (
        _deformed,
        lambda n: (_image(n), torch.randn(8, 18, *_image(n).shape[2:]), torch.randn(32, 32, 3, 3)),
    ),
    "torchvision.models.detection._utils.BoxCoder.decode": (
        _decoded,
        lambda n: (torch.randn(n // 4, 4) / 4, _boxes(n // 4)),
    ),
    "torchvision.models.detection.roi_heads.paste_masks_in_image": (
        _pasted,
        lambda n: (torch.rand(n // 65536, 1, 28, 28), _boxes(n // 65536)),
    ),
    "torchvision.ops.poolers._multiscale_roi_align": (
        _pooled,
        lambda n: (torch.randn(1, 64, 64, 64), torch.randn(1, 64, 32, 32), _boxes(n // 4096)),
    ),
}
