"""Operators that an exporter or an engine turned away, or translated wrongly."""

from __future__ import annotations

import torch
import torch.nn.functional as F
import torchvision
from side_by_side import Situation
from torch import nn
from torch.export import Dim

from situations.report import Report

D = Dim.DYNAMIC


class Irfft2(nn.Module):
    def forward(self, c):
        return torch.fft.irfft2(c)


class FourierUnit(nn.Module):
    """The Fourier convolution of LaMa."""

    def __init__(self, channels=3):
        super().__init__()
        self.conv = nn.Conv2d(2 * channels, 2 * channels, 1)

    def forward(self, x):
        batch, channels, height, width = x.shape
        spectrum = torch.fft.rfftn(x, dim=(-2, -1), norm="ortho")
        stacked = torch.stack((spectrum.real, spectrum.imag), -1).permute(0, 1, 4, 2, 3)
        y = F.relu(self.conv(stacked.reshape(batch, 2 * channels, height, spectrum.shape[-1])))
        y = y.view(batch, channels, 2, height, -1).permute(0, 1, 3, 4, 2).contiguous()
        return torch.fft.irfftn(torch.complex(y[..., 0], y[..., 1]), s=(height, width), dim=(-2, -1), norm="ortho")


class Fftn(nn.Module):
    def forward(self, x):
        x = torch.fft.fftn(x, dim=(-2, -1))
        return torch.roll(x, 1, -1).abs()


class ViewsBits(nn.Module):
    """Exponents of floating-point numbers, from their bits."""

    def forward(self, x):
        bits = x.view(torch.int32)
        return ((bits >> 23) & 0xFF) - 127


class BitwiseOr(nn.Module):
    def forward(self, x, y):
        result = ~x.view(torch.int32) | y.view(torch.int32)
        return result.view(y.dtype)


class Bucketizes(nn.Module):
    def forward(self, x):
        return torch.bucketize(x, torch.linspace(0, 1, 100))


class ScatterMax(nn.Module):
    """The maximum of each group, without the initial zeros."""

    def forward(self, x, index):
        out = torch.zeros(4, x.shape[1])
        index = index[:, None].expand_as(x)
        best = out.scatter_reduce(0, index, x, reduce="amax", include_self=False)
        return best, out.scatter_reduce(0, index, x, reduce="mean", include_self=False)


class MergesTokens(nn.Module):
    """Token merging: tokens are averaged into others."""

    def forward(self, dst, dst_idx, src):
        n, r, c = src.shape
        return dst.scatter_reduce(-2, dst_idx.expand(n, r, c), src, reduce="mean")


class AssignsColumns(nn.Module):
    def forward(self, indices, tensor_1, tensor_2):
        tensor_1[:, indices] = tensor_2
        return tensor_1


class CopiesIntoFixed(nn.Module):
    """Detections are copied into an array of a fixed size."""

    def forward(self, found):
        out = torch.zeros(20, 4)
        indices = torch.arange(found.size(0), dtype=torch.long)
        return out.index_copy_(0, indices, found)


class SlicesByTensors(nn.Module):
    def forward(self, data, start, end):
        return data[:, :, start:end]


class RepeatsByTensor(nn.Module):
    def forward(self, x, repeats):
        return torch.repeat_interleave(x, repeats, dim=0)


class GridSample3d(nn.Module):
    def forward(self, volume, grid):
        zeros = F.grid_sample(volume, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
        return zeros, F.grid_sample(volume, grid, mode="nearest", padding_mode="border", align_corners=True)


class Resizes(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.options = options

    def forward(self, x):
        return F.interpolate(x, **self.options)


class DoublesWithAntialias(nn.Module):
    def forward(self, x):
        height, width = x.shape[2:]
        size = (height * 2, width * 2)
        return F.interpolate(x, size=size, mode="bicubic", align_corners=False, antialias=True)


class DeformableConv(nn.Module):
    def __init__(self):
        super().__init__()
        self.offset, self.mask = nn.Conv2d(3, 18, 3, padding=1), nn.Conv2d(3, 9, 3, padding=1)
        self.conv = torchvision.ops.DeformConv2d(3, 4, 3, padding=1)

    def forward(self, x):
        return self.conv(x, self.offset(x) * 2, torch.sigmoid(self.mask(x)))


class Homography(nn.Module):
    """Warps crops by the inverse of camera matrices."""

    def forward(self, crops, intrinsics):
        ys, xs = torch.meshgrid(torch.linspace(-1, 1, 6), torch.linspace(-1, 1, 6), indexing="ij")
        points = torch.stack([xs, ys, torch.ones_like(xs)], -1).reshape(-1, 3)
        rays = points @ torch.linalg.inv(intrinsics).transpose(1, 2)
        grid = (rays[..., :2] / rays[..., 2:]).view(-1, 6, 6, 2)
        return F.grid_sample(crops, grid, align_corners=True)


class LeastSquares(nn.Module):
    """A ridge regression that is solved in the model."""

    def forward(self, features, targets):
        gram = features.transpose(1, 2) @ features + 0.5 * torch.eye(features.shape[-1])
        return torch.linalg.solve(gram, features.transpose(1, 2) @ targets)


class PaddedBags(nn.Module):
    def __init__(self):
        super().__init__()
        self.residue_embed = nn.EmbeddingBag(num_embeddings=10, embedding_dim=3, mode="sum", padding_idx=0)

    def forward(self, x):
        return self.residue_embed(x, torch.tensor([0, 4]))


class BagsOfOffsets(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(20, 4, mode="mean", include_last_offset=True)

    def forward(self, words, offsets):
        return self.bag(words, offsets)


class Activations(nn.Module):
    def forward(self, x):
        return F.elu(x, 1.3) + torch.expm1(x * 0.1) + F.selu(x), F.glu(x, -1)


class MinimumWithOther(nn.Module):
    def forward(self, x, y):
        return torch.min(x, y), torch.max(x, y), x.clamp(max=y), torch.clamp(y, -0.5, 1)


class LayerNormOfTwo(nn.Module):
    """The block of the report: a projection and a LayerNorm over two dimensions."""

    def __init__(self):
        super().__init__()
        self.intra_fc, self.intra_norm = nn.Linear(8, 8), nn.LayerNorm((6, 8), eps=1e-8)

    def forward(self, x):
        return self.intra_norm(self.intra_fc(x.permute(0, 2, 3, 1).squeeze(0)))


class ChannelNorm(nn.Module):
    def __init__(self, channels=4):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.rand(channels)), nn.Parameter(torch.rand(channels))

    def forward(self, x):
        mu = x.mean(dim=1, keepdim=True)
        var = (x - mu).pow(2).mean(dim=1, keepdim=True)
        y = (x - mu) / (var + 1e-6).sqrt()
        return self.weight.view(1, -1, 1, 1) * y + self.bias.view(1, -1, 1, 1)


class AminmaxScaler(nn.Module):
    def forward(self, x):
        low, high = torch.aminmax(x, dim=-1, keepdim=True)
        return (x - low) / (high - low)


class CleansNan(nn.Module):
    def forward(self, x):
        return torch.nan_to_num(torch.log(x), nan=0.5, neginf=-9.0).mT


class ArgmaxOfTransposed(nn.Module):
    def __init__(self):
        super().__init__()
        self.offset = nn.Buffer(torch.tensor([[500.0]], dtype=torch.float16))

    def forward(self, x):
        x = (x + self.offset).to(torch.float64)
        return x.argmax(1), x.transpose(0, 1)


class EinsumPath(nn.Module):
    def forward(self, x, y):
        scores = torch.einsum("bthd,bshd->bhts", x, y)
        return torch.einsum("...ts,bshd->bthd", scores.softmax(-1), y)


class SameAndValid(nn.Module):
    def __init__(self):
        super().__init__()
        self.same, self.valid = nn.Conv3d(1, 2, (2, 3, 4), padding="same"), nn.Conv2d(2, 2, 3, padding="valid")
        self.up = nn.ConvTranspose2d(2, 2, 3, stride=2, padding=1, output_padding=1)

    def forward(self, x):
        return self.up(self.valid(self.same(x).mean(2)))


class MeshgridOfTensors(nn.Module):
    def forward(self, x, y):
        return torch.stack(torch.meshgrid(x, y, indexing="xy"), -1)


def crops() -> tuple[torch.Tensor, ...]:
    return torch.rand(2, 3, 8, 8), torch.eye(3) + 0.1 * torch.rand(2, 3, 3)


IMAGES = {0: D, 2: D, 3: D}
OPENVINO = {"opbridge": {"engines": ("onnxruntime", "openvino")}}
NCNN = {"opbridge": {"engines": ("onnxruntime", "ncnn")}}

REPORTS = (
    Report(
        "irfft2 of a complex input",
        "https://github.com/pytorch/pytorch/issues/164698",
        lambda: Situation(Irfft2(), (torch.fft.rfft2(torch.randn(1, 3, 8, 10)),)),
    ),
    Report(
        "LaMa: irfftn with two dynamic sizes",
        "https://github.com/Carve-Photos/lama/pull/14",
        lambda: Situation(FourierUnit(), (torch.randn(2, 3, 12, 16),), dynamic_shapes={"x": IMAGES}),
    ),
    Report(
        "fftn and roll with dynamic sizes",
        "https://github.com/pytorch/pytorch/issues/128324",
        lambda: Situation(Fftn(), (torch.randn(2, 3, 9, 12),), dynamic_shapes={"x": IMAGES}),
    ),
    Report(
        "view(dtype): the exponent of a number",
        "https://github.com/pytorch/pytorch/issues/126921",
        lambda: Situation(ViewsBits(), (torch.randn(5, 7) * 100,), dynamic_shapes={"x": {0: D}}),
    ),
    Report(
        "view(dtype) there and back",
        "https://github.com/pytorch/pytorch/issues/116443",
        lambda: Situation(BitwiseOr(), (-torch.rand(10) - 1, torch.rand(10) + 1)),
    ),
    Report(
        "bucketize",
        "https://github.com/pytorch/pytorch/issues/148098",
        lambda: Situation(Bucketizes(), (torch.rand(100),), dynamic_shapes={"x": {0: D}}),
    ),
    Report(
        "scatter_reduce with include_self=False",
        "https://github.com/pytorch/pytorch/issues/106373",
        lambda: Situation(
            ScatterMax(),
            (torch.randn(9, 3), torch.tensor([0, 1, 1, 3, 3, 0, 1, 0, 3])),
            dynamic_shapes={"x": {0: Dim("edges")}, "index": {0: Dim("edges")}},
        ),
    ),
    Report(
        "token merging with scatter_reduce mean",
        "https://github.com/pytorch/pytorch/issues/101535",
        lambda: Situation(
            MergesTokens(),
            (torch.randn(2, 6, 4), torch.randint(0, 6, (2, 3, 1)), torch.randn(2, 3, 4)),
            dynamic_shapes={
                "dst": {0: Dim("n"), 1: Dim("tokens", min=6)},
                "dst_idx": {0: Dim("n"), 1: Dim("r")},
                "src": {0: Dim("n"), 1: Dim("r")},
            },
        ),
    ),
    Report(
        "assignment to columns by an index tensor",
        "https://github.com/pytorch/pytorch/issues/119363",
        lambda: Situation(
            AssignsColumns(),
            (torch.randperm(10)[:5], torch.rand(4, 10), torch.rand(4, 5)),
            dynamic_shapes={"indices": None, "tensor_1": {0: Dim("rows")}, "tensor_2": {0: Dim("rows")}},
        ),
    ),
    Report(
        "index_copy_ into an array of a fixed size",
        "https://github.com/pytorch/pytorch/issues/158739",
        lambda: Situation(CopiesIntoFixed(), (torch.rand(7, 4),), dynamic_shapes={"found": {0: Dim("found", max=20)}}),
    ),
    Report(
        "slicing with tensors as bounds",
        "https://github.com/pytorch/pytorch/issues/104314",
        lambda: Situation(SlicesByTensors(), (torch.randn(1, 40, 41), torch.tensor([36]), torch.tensor([41]))),
    ),
    Report(
        "repeat_interleave with a tensor of repeats",
        "https://github.com/pytorch/pytorch/issues/156873",
        lambda: Situation(
            RepeatsByTensor(),
            (torch.randn(6, 4), torch.tensor([1, 0, 3, 2, 1, 4])),
            dynamic_shapes={"x": {0: Dim("n")}, "repeats": {0: Dim("n")}},
        ),
    ),
    Report(
        "grid_sample of a volume",
        "https://github.com/pytorch/pytorch/issues/100790",
        lambda: Situation(
            GridSample3d(),
            (torch.rand(2, 3, 4, 5, 6), torch.rand(2, 3, 4, 5, 3) * 2.4 - 1.2),
            dynamic_shapes={"volume": {0: Dim("b"), 2: Dim("d")}, "grid": {0: Dim("b"), 1: Dim("out")}},
        ),
    ),
    Report(
        "grid_sample of a volume in OpenVINO",
        "https://github.com/openvinotoolkit/openvino/issues/37770",
        lambda: Situation(
            GridSample3d(), (torch.rand(1, 1, 4, 4, 4), torch.rand(1, 4, 4, 4, 3) * 2.4 - 1.2), options=OPENVINO
        ),
    ),
    Report(
        "bicubic with antialias, twice the size (DINOv2)",
        "https://github.com/pytorch/pytorch/issues/157220",
        lambda: Situation(DoublesWithAntialias(), (torch.rand(1, 3, 12, 15),), dynamic_shapes={"x": IMAGES}),
    ),
    Report(
        "bicubic with antialias, smaller",
        "https://github.com/pytorch/pytorch/issues/177138",
        lambda: Situation(
            Resizes(size=(8, 8), mode="bicubic", antialias=True), (torch.rand(1, 3, 32, 29),), dynamic_shapes=({0: D},)
        ),
    ),
    Report(
        "bilinear with antialias",
        "https://github.com/pytorch/pytorch/issues/183546",
        lambda: Situation(
            Resizes(size=(5, 7), mode="bilinear", antialias=True), (torch.rand(2, 3, 16, 20),), dynamic_shapes=(IMAGES,)
        ),
    ),
    Report(
        "bilinear to one cell",
        "https://github.com/pytorch/pytorch/issues/183523",
        lambda: Situation(
            Resizes(size=(1, 1), mode="bilinear", align_corners=False),
            (torch.rand(2, 3, 5, 6),),
            dynamic_shapes=(IMAGES,),
        ),
    ),
    Report(
        "deform_conv2d",
        "https://github.com/pytorch/pytorch/issues/185195",
        lambda: Situation(DeformableConv(), (torch.randn(2, 3, 9, 11),), dynamic_shapes={"x": IMAGES}),
    ),
    Report(
        "linalg.inv of camera matrices",
        "https://github.com/pytorch/pytorch/issues/107948",
        lambda: Situation(Homography(), crops(), dynamic_shapes={"crops": {0: Dim("b")}, "intrinsics": {0: Dim("b")}}),
    ),
    Report(
        "linalg.solve",
        "https://github.com/pytorch/pytorch/issues/133052",
        lambda: Situation(
            LeastSquares(),
            (torch.randn(2, 9, 4), torch.randn(2, 9, 2)),
            dynamic_shapes={"features": {0: Dim("b"), 1: Dim("n")}, "targets": {0: Dim("b"), 1: Dim("n")}},
        ),
    ),
    Report(
        "EmbeddingBag with padding_idx",
        "https://github.com/pytorch/pytorch/issues/128930",
        lambda: Situation(PaddedBags(), (torch.tensor([1, 2, 4, 0, 4, 3, 0, 9]),), dynamic_shapes={"x": {0: D}}),
    ),
    Report(
        "EmbeddingBag with offsets",
        "https://github.com/pytorch/pytorch/issues/138485",
        lambda: Situation(
            BagsOfOffsets(),
            (torch.randint(0, 20, (9,)), torch.tensor([0, 3, 5, 9])),
            dynamic_shapes={"words": {0: D}, "offsets": None},
            fresh=lambda sizes, seed: (
                (
                    torch.randint(0, 20, (sizes["words.0"],), generator=torch.Generator().manual_seed(seed)),
                    torch.tensor([0, 2, 5, sizes["words.0"]]),
                ),
                {},
            ),
        ),
    ),
    Report(
        "elu, expm1 and glu",
        "https://github.com/pytorch/pytorch/issues/129530",
        lambda: Situation(Activations(), (torch.randn(3, 8),), dynamic_shapes={"x": {0: D}}),
    ),
    Report(
        "min.other, and clamp with a tensor",
        "https://github.com/microsoft/onnxscript/issues/2146",
        lambda: Situation(
            MinimumWithOther(),
            (torch.randn(3, 4), torch.randn(3, 4)),
            dynamic_shapes={"x": {0: Dim("n")}, "y": {0: Dim("n")}},
        ),
    ),
    Report(
        "LayerNorm over two dimensions to ncnn",
        "https://github.com/Tencent/ncnn/issues/5942",
        lambda: Situation(LayerNormOfTwo(), (torch.randn(1, 8, 5, 6),), options=NCNN),
    ),
    Report(
        "a LayerNorm of one's own to ncnn",
        "https://github.com/Tencent/ncnn/issues/5442",
        lambda: Situation(ChannelNorm(), (torch.randn(1, 4, 6, 6),), options=NCNN),
    ),
    Report(
        "aminmax in OpenVINO",
        "https://github.com/openvinotoolkit/openvino/issues/23746",
        lambda: Situation(AminmaxScaler(), (torch.randn(3, 9),), dynamic_shapes={"x": {0: D, 1: D}}, options=OPENVINO),
    ),
    Report(
        "nan_to_num and mT in OpenVINO",
        "https://github.com/openvinotoolkit/openvino/issues/28689",
        lambda: Situation(
            CleansNan(),
            (torch.tensor([[1.5, 0.0, 2.5], [-0.5, 3.5, 0.0]]),),
            dynamic_shapes={"x": {0: D}},
            options=OPENVINO,
        ),
    ),
    Report(
        "argmax beside a transpose, in float16",
        "https://github.com/microsoft/onnxruntime/issues/18227",
        lambda: Situation(ArgmaxOfTransposed(), (torch.rand(4, 9).half() * 7,), dynamic_shapes={"x": {0: D}}),
    ),
    Report(
        "einsum with an ellipsis",
        "https://github.com/pytorch/pytorch/issues/123939",
        lambda: Situation(
            EinsumPath(),
            (torch.randn(2, 5, 3, 4), torch.randn(2, 6, 3, 4)),
            dynamic_shapes={"x": {0: Dim("b"), 1: Dim("t")}, "y": {0: Dim("b"), 1: Dim("s")}},
        ),
    ),
    Report(
        "padding='same' and 'valid', output_padding",
        "https://github.com/pytorch/pytorch/issues/117054",
        lambda: Situation(SameAndValid(), (torch.randn(2, 1, 4, 9, 8),), dynamic_shapes={"x": {0: D, 3: D, 4: D}}),
    ),
    Report(
        "meshgrid with indexing='xy'",
        "https://github.com/pytorch/pytorch/issues/141770",
        lambda: Situation(MeshgridOfTensors(), (torch.randn(4), torch.randn(6)), dynamic_shapes=({0: D}, {0: D})),
    ),
    Report(
        "InstanceNorm1d with running statistics",
        "https://github.com/pytorch/pytorch/issues/128501",
        lambda: Situation(
            nn.InstanceNorm1d(7, track_running_stats=True).eval(), (torch.randn(3, 7, 11),), dynamic_shapes=({0: D},)
        ),
    ),
    Report(
        "InstanceNorm2d in evaluation mode",
        "https://github.com/microsoft/onnxscript/issues/1262",
        lambda: Situation(
            nn.InstanceNorm2d(5, affine=True).eval(), (torch.randn(2, 5, 9, 7),), dynamic_shapes=(IMAGES,)
        ),
    ),
)
