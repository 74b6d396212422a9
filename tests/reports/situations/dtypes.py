"""Half types, sparse tensors, mixed precision."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from side_by_side import Situation
from torch import nn
from torch.export import Dim

from situations.report import Report

D = Dim.DYNAMIC


class Classifier(nn.Module):
    """A text classifier with attention, in any floating-point type."""

    def __init__(self):
        super().__init__()
        self.embed, self.mix = nn.Embedding(40, 16), nn.Linear(16, 48)
        self.norm, self.out = nn.LayerNorm(16), nn.Linear(16, 2)

    def forward(self, input_ids, attention_mask):
        x = self.embed(input_ids)
        q, k, v = self.mix(x).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        mask = attention_mask[:, None, None, :].bool()
        x = self.norm(x + F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2))
        return self.out(x[:, 0])


class Block(nn.Module):
    """A projection, a LayerNorm and a GELU."""

    def __init__(self):
        super().__init__()
        self.dense, self.norm = nn.Linear(12, 12), nn.LayerNorm(12, eps=1e-12)

    def forward(self, x):
        return self.norm(F.gelu(self.dense(x)) + x)


class Autocast(nn.Module):
    """Mixed precision that is part of the model."""

    def __init__(self):
        super().__init__()
        self.dense, self.out = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = self.dense(x).relu()
        return self.out(x.float())


class SparseWeight(nn.Module):
    """A pruned weight in COO format."""

    def __init__(self):
        super().__init__()
        weight = torch.randn(6, 8)
        self.register_buffer("weight", (weight * (weight > 0.5)).to_sparse())

    def forward(self, x):
        return torch.sparse.mm(self.weight, x)


class SparseCsrWeight(nn.Module):
    """A pruned weight in CSR format, used as a linear layer."""

    def __init__(self):
        super().__init__()
        weight = torch.randn(6, 8)
        self.register_buffer("weight", (weight * (weight > 0.5)).to_sparse_csr())

    def forward(self, x):
        return (self.weight @ x.T).T


class BuildsSparse(nn.Module):
    """An adjacency matrix is made from edges and multiplied."""

    def __init__(self):
        super().__init__()
        self.mlp = nn.Linear(4, 3)

    def forward(self, row, col, features):
        adjacency = torch.sparse_coo_tensor(torch.stack([row, col]), torch.ones(row.shape[0]), (6, 6))
        return self.mlp(torch.sparse.mm(adjacency, features))


class RotaryInDouble(nn.Module):
    """Positions in float64 beside a half-precision model (Flux)."""

    def forward(self, x, positions):
        omega = 1.0 / 10000 ** (torch.arange(0, 8, 2, dtype=torch.float64) / 8)
        angles = torch.einsum("bn,d->bnd", positions.double(), omega)
        rotation = torch.stack([angles.cos(), -angles.sin(), angles.sin(), angles.cos()], -1).unflatten(-1, (2, 2))
        pairs = x.float().unflatten(-1, (4, 1, 2))
        return (rotation.float() * pairs).sum(-1).flatten(-2).to(x.dtype)


class Preprocesses(nn.Module):
    """A uint8 image is resized, scaled and normalized before the network."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406])[:, None, None])
        self.conv = nn.Conv2d(3, 4, 3, 2)

    def forward(self, image):
        x = F.interpolate(image.float(), size=(16, 16), mode="bilinear", align_corners=False).round().clamp(0, 255)
        return self.conv((x.to(torch.uint8).float() / 255 - self.mean) / 0.225)


def words() -> tuple[torch.Tensor, torch.Tensor]:
    mask = torch.ones(3, 6, dtype=torch.int64)
    mask[1, 4:] = 0
    return torch.randint(0, 40, (3, 6)), mask


TEXT = {"input_ids": {0: Dim("b"), 1: Dim("s")}, "attention_mask": {0: Dim("b"), 1: Dim("s")}}

REPORTS = (
    Report(
        "a model in bfloat16",
        "https://github.com/pytorch/pytorch/issues/143643",
        lambda: Situation(Classifier().to(torch.bfloat16).eval(), words(), dynamic_shapes=TEXT),
    ),
    Report(
        "LayerNorm in float16",
        "https://github.com/pytorch/pytorch/issues/190338",
        lambda: Situation(Block().half().eval(), (torch.randn(2, 5, 12).half(),), dynamic_shapes={"x": {0: D, 1: D}}),
    ),
    Report(
        "autocast to bfloat16 in forward",
        "https://github.com/pytorch/pytorch/issues/158658",
        lambda: Situation(Autocast().eval(), (torch.randn(3, 8),), dynamic_shapes={"x": {0: D}}),
    ),
    Report(
        "a sparse weight",
        "https://github.com/pytorch/pytorch/issues/97652",
        lambda: Situation(SparseWeight(), (torch.randn(8, 5),), dynamic_shapes={"x": {1: D}}),
    ),
    Report(
        "a sparse weight in CSR format",
        "https://github.com/pytorch/pytorch/issues/123345",
        lambda: Situation(SparseCsrWeight(), (torch.randn(5, 8),), dynamic_shapes={"x": {0: D}}),
    ),
    Report(
        "a sparse matrix made from indices",
        "https://github.com/pytorch/pytorch/issues/112487",
        lambda: Situation(
            BuildsSparse(),
            (torch.randint(0, 6, (9,)), torch.randint(0, 6, (9,)), torch.randn(6, 4)),
            dynamic_shapes={"row": {0: Dim("edges")}, "col": {0: Dim("edges")}, "features": None},
        ),
    ),
    Report(
        "Einsum bound to float64 and float16",
        "https://github.com/microsoft/Olive/issues/1287",
        lambda: Situation(
            RotaryInDouble(),
            (torch.randn(2, 5, 8).half(), torch.arange(10).view(2, 5)),
            dynamic_shapes={"x": {0: Dim("b"), 1: Dim("n")}, "positions": {0: Dim("b"), 1: Dim("n")}},
        ),
    ),
    Report(
        "preprocessing of uint8 images",
        "https://github.com/pytorch/vision/issues/9462",
        lambda: Situation(
            Preprocesses().eval(),
            (torch.randint(0, 256, (1, 3, 20, 24), dtype=torch.uint8),),
            dynamic_shapes={"image": {0: D, 2: D, 3: D}},
        ),
    ),
)
