"""Attention: masks, caches, rotary positions, nested batches."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from side_by_side import Situation
from torch import nn
from torch.export import Dim
from torch.nn.attention.flex_attention import flex_attention

from situations.report import Report

D = Dim.DYNAMIC


class FlexAttention(nn.Module):
    def __init__(self, dim=16, num_heads=4):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, dim // num_heads
        self.qkv, self.proj = nn.Linear(dim, dim * 3), nn.Linear(dim, dim)

    def forward(self, x):
        batch, tokens, dim = x.shape
        q, k, v = self.qkv(x).reshape(batch, tokens, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        attended = flex_attention(q, k, v, score_mod=distance_bias, scale=self.head_dim**-0.5)
        return self.proj(attended.transpose(1, 2).reshape(batch, tokens, dim))


def distance_bias(score, batch, head, query, key):
    return score - 0.1 * (query - key).abs()


class SdpaWithMask(nn.Module):
    def forward(self, query, key, value, attn_mask):
        return F.scaled_dot_product_attention(query, key, value, attn_mask=attn_mask)


class GroupedQueries(nn.Module):
    def forward(self, query, key, value):
        return F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)


class EmbeddingSdpa(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeddings = nn.Embedding(100, 12)

    def forward(self, input_ids):
        x = self.embeddings(input_ids)
        return F.scaled_dot_product_attention(x, x, x)


class MhaWrapper(nn.Module):
    def __init__(self):
        super().__init__()
        self.mha1 = nn.MultiheadAttention(16, 4, batch_first=False)

    def forward(self, x, mask):
        return self.mha1(x, x, x, attn_mask=mask, need_weights=False)[0]


class MhaWithWeights(nn.Module):
    def __init__(self):
        super().__init__()
        self.mha = nn.MultiheadAttention(16, 4, batch_first=True, add_bias_kv=True)

    def forward(self, x, key_padding_mask):
        return self.mha(x, x, x, key_padding_mask=key_padding_mask)


class TextEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(15, 24)
        layer = nn.TransformerEncoderLayer(24, nhead=4, dim_feedforward=24, dropout=0.2, batch_first=True)
        self.attn_layers = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=True)

    def forward(self, x):
        return self.attn_layers(self.emb(x))


class SeriesModel(nn.Module):
    """A TransformerEncoderLayer with a padding mask, in evaluation mode, where the fast path runs."""

    def __init__(self):
        super().__init__()
        self.pre = nn.Sequential(nn.LayerNorm(12), nn.Dropout(0.3), nn.Linear(12, 16), nn.ReLU())
        self.layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.3, batch_first=True)

    def forward(self, x, padding):
        return self.layer(self.pre(x), src_key_padding_mask=padding)


class Phonemizer(nn.Module):
    """A decoder with a causal mask that is computed inside."""

    def __init__(self):
        super().__init__()
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 2, 32), 1)

    def forward(self, output, memory):
        mask = nn.Transformer.generate_square_subsequent_mask(output.size(0))
        return self.decoder(output, memory, tgt_mask=mask)


class WholeTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.transformer = nn.Transformer(16, 2, 1, 1, 32, batch_first=True)

    def forward(self, src, tgt):
        return self.transformer(src, tgt)


class LlamaMask(nn.Module):
    """A causal mask with padding, cut to the length of the keys."""

    def forward(self, scores, attention_mask):
        length = scores.shape[-1]
        minimum = torch.finfo(scores.dtype).min
        causal = torch.full((length, length), minimum).triu(1)[None, None].expand(scores.shape[0], 1, -1, -1).clone()
        mask_length = attention_mask.shape[-1]
        padding = causal[:, :, :, :mask_length] + attention_mask[:, None, None, :]
        causal[:, :, :, :mask_length] = causal[:, :, :, :mask_length].masked_fill(padding == 0, minimum)
        return (scores + causal[:, :, :, : scores.shape[-2]]).softmax(-1)


class VmapMask(nn.Module):
    """A causal mask made by vmap over positions."""

    def forward(self, scores):
        def allowed(query, key):
            return key <= query

        over_keys = torch.vmap(allowed, (None, 0))
        mask = torch.vmap(over_keys, (0, None))(torch.arange(scores.shape[-2]), torch.arange(scores.shape[-1]))
        return scores.masked_fill(~mask, -1e4).softmax(-1)


class Decoder(nn.Module):
    """Two layers with a cache of keys and values, given and returned as nested lists."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.ModuleList([nn.Linear(12, 36) for _ in range(2)])

    def forward(self, x, cache):
        kept = []
        for qkv, (keys, values) in zip(self.qkv, cache, strict=True):
            q, k, v = (t.unflatten(-1, (3, 4)).transpose(1, 2) for t in qkv(x).chunk(3, -1))
            k, v = torch.cat([keys, k], 2), torch.cat([values, v], 2)
            kept.append((k, v))
            steps = torch.arange(k.shape[2])
            mask = steps[None, :] <= (steps[-q.shape[2] :])[:, None]
            x = x + F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)
        return x, kept


class ComplexRotary(nn.Module):
    """Rotary positions by multiplication of complex numbers (Llama)."""

    def __init__(self, dim=8, end=64):
        super().__init__()
        frequencies = torch.outer(torch.arange(end), 1.0 / 10000 ** (torch.arange(0, dim, 2) / dim))
        self.register_buffer("freqs_cis", torch.polar(torch.ones_like(frequencies), frequencies))

    def forward(self, x):
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        rotated = pairs * self.freqs_cis[: x.shape[1]].view(1, x.shape[1], 1, -1)
        return torch.view_as_real(rotated).flatten(3).type_as(x)


class AxialRotary(nn.Module):
    """Rotary positions in two dimensions, with the polar form computed in forward (SAM 2)."""

    def forward(self, x, angles):
        cis = torch.polar(torch.ones_like(angles), angles)
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * cis).flatten(-2)


class NestedAttention(nn.Module):
    """A batch of sequences of several lengths as a jagged tensor."""

    def __init__(self):
        super().__init__()
        self.project = nn.Linear(5, 5)

    def forward(self, values, offsets):
        nested = torch.nested.nested_tensor_from_jagged(values, offsets)
        return torch.nested.to_padded_tensor(self.project(nested), 0.0)


class NestedInput(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(5, 3)

    def forward(self, x):
        return self.project(x).values()


def heads(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


def row_masked() -> torch.Tensor:
    mask = torch.ones(2, 4, 8, 8, dtype=torch.bool)
    mask[0, 0, 0] = False
    mask[1, :, :, 5:] = False
    return mask


def cache() -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(torch.randn(2, 3, 5, 4), torch.randn(2, 3, 5, 4)) for _ in range(2)]


TOKENS = {0: D, 1: D}
BATCH, PAST, NEW = Dim("batch"), Dim("past"), Dim("new")

REPORTS = (
    Report(
        "flex_attention with a bias",
        "https://github.com/pytorch/pytorch/issues/140400",
        lambda: Situation(FlexAttention(), (torch.randn(2, 9, 16),), dynamic_shapes={"x": TOKENS}),
    ),
    Report(
        "attention whose mask leaves a row empty",
        "https://github.com/pytorch/pytorch/pull/159973",
        lambda: Situation(
            SdpaWithMask(),
            (heads(2, 4, 8, 16), heads(2, 4, 8, 16), heads(2, 4, 8, 16), row_masked()),
            dynamic_shapes=({0: BATCH}, {0: BATCH}, {0: BATCH}, {0: BATCH}),
        ),
    ),
    Report(
        "grouped query attention",
        "https://github.com/pytorch/pytorch/issues/151762",
        lambda: Situation(
            GroupedQueries(),
            (heads(2, 8, 6, 4), heads(2, 2, 6, 4), heads(2, 2, 6, 4)),
            dynamic_shapes=({0: BATCH, 2: NEW}, {0: BATCH, 2: NEW}, {0: BATCH, 2: NEW}),
        ),
    ),
    Report(
        "attention on embeddings, both sizes Dim.DYNAMIC",
        "https://github.com/pytorch/pytorch/issues/152018",
        lambda: Situation(EmbeddingSdpa(), (torch.randint(0, 100, (4, 9)),), dynamic_shapes=((D, D),)),
    ),
    Report(
        "MultiheadAttention with a mask, exported at batch 1",
        "https://github.com/pytorch/pytorch/issues/120075",
        lambda: Situation(
            MhaWrapper(),
            (torch.rand(7, 1, 16), torch.eye(7).roll(1, 0).bool()),
            dynamic_shapes={"x": {0: Dim("num_elem")}, "mask": {0: Dim("num_elem"), 1: Dim("num_elem")}},
        ),
    ),
    Report(
        "MultiheadAttention with a padding mask and weights",
        "https://github.com/pytorch/pytorch/issues/99701",
        lambda: Situation(
            MhaWithWeights().eval(),
            (torch.randn(3, 6, 16), torch.tensor([[False] * 6, [False] * 4 + [True] * 2, [False] * 5 + [True]])),
            dynamic_shapes={"x": {0: BATCH, 1: Dim("length")}, "key_padding_mask": {0: BATCH, 1: Dim("length")}},
        ),
    ),
    Report(
        "TransformerEncoder of tokens, exported at batch 1",
        "https://github.com/pytorch/pytorch/issues/110557",
        lambda: Situation(TextEncoder().eval(), (torch.tensor([[1, 2, 3]]),), dynamic_shapes={"x": TOKENS}),
    ),
    Report(
        "TransformerEncoderLayer with a padding mask",
        "https://github.com/pytorch/pytorch/issues/117209",
        lambda: Situation(
            SeriesModel().eval(),
            (torch.randn(3, 6, 12), torch.tensor([[False] * 6, [False] * 4 + [True] * 2, [False] * 5 + [True]])),
            dynamic_shapes={"x": {0: BATCH, 1: Dim("length")}, "padding": {0: BATCH, 1: Dim("length")}},
        ),
    ),
    Report(
        "TransformerDecoder with a causal mask of a dynamic size",
        "https://github.com/pytorch/pytorch/issues/110255",
        lambda: Situation(
            Phonemizer().eval(),
            (torch.randn(7, 2, 16), torch.randn(12, 2, 16)),
            dynamic_shapes={"output": {0: Dim("target")}, "memory": {0: Dim("source")}},
        ),
    ),
    Report(
        "nn.Transformer with batch and lengths dynamic",
        "https://github.com/pytorch/pytorch/issues/122321",
        lambda: Situation(
            WholeTransformer().eval(),
            (torch.randn(2, 9, 16), torch.randn(2, 5, 16)),
            dynamic_shapes={"src": {0: BATCH, 1: Dim("source")}, "tgt": {0: BATCH, 1: Dim("target")}},
        ),
    ),
    Report(
        "Llama: a slice of the causal mask",
        "https://github.com/pytorch/pytorch/issues/140011",
        lambda: Situation(
            LlamaMask(),
            (torch.randn(1, 2, 6, 6), torch.tensor([[1.0, 1.0, 1.0, 1.0, 1.0, 0.0]])),
            dynamic_shapes={
                "scores": {2: Dim("length", max=128), 3: Dim("length", max=128)},
                "attention_mask": {1: Dim("length", max=128)},
            },
        ),
    ),
    Report(
        "a causal mask made with vmap",
        "https://github.com/huggingface/transformers/pull/42721",
        lambda: Situation(
            VmapMask(), (torch.randn(2, 5, 5),), dynamic_shapes={"scores": {0: D, 1: Dim("length"), 2: Dim("length")}}
        ),
    ),
    Report(
        "a cache of keys and values in nested lists",
        "https://github.com/pytorch/pytorch/issues/155862",
        lambda: Situation(
            Decoder(),
            (torch.randn(2, 3, 12), cache()),
            dynamic_shapes={
                "x": {0: BATCH, 1: NEW},
                "cache": [({0: BATCH, 2: PAST}, {0: BATCH, 2: PAST}), ({0: BATCH, 2: PAST}, {0: BATCH, 2: PAST})],
            },
        ),
    ),
    Report(
        "rotary positions with a complex buffer",
        "https://github.com/onnx/onnx/issues/6480",
        lambda: Situation(
            ComplexRotary(), (torch.randn(2, 6, 3, 8),), dynamic_shapes={"x": {0: D, 1: Dim("length", max=64)}}
        ),
    ),
    Report(
        "rotary positions with polar in forward",
        "https://github.com/facebookresearch/sam2/issues/186",
        lambda: Situation(
            AxialRotary(),
            (torch.randn(2, 6, 8), torch.randn(6, 4)),
            dynamic_shapes={"x": {0: D, 1: Dim("n")}, "angles": {0: Dim("n")}},
        ),
    ),
    Report(
        "nested_tensor_from_jagged",
        "https://github.com/pytorch/pytorch/issues/149605",
        lambda: Situation(NestedAttention(), (torch.randn(12, 5), torch.tensor([0, 3, 5, 6, 10, 12]))),
    ),
    Report(
        "a jagged tensor as the input",
        "https://github.com/onnx/onnx/issues/6525",
        lambda: Situation(
            NestedInput(),
            (torch.nested.nested_tensor([torch.randn(3, 5), torch.randn(2, 5)], layout=torch.jagged),),
        ),
    ),
)
