"""One node per attention block: an operator whose body a vision transformer computes, found by ``opbridge fuse``.

An engine's plugin for attention takes the block's input and its weights. With ``opbridge.fuse`` the node is put into a
model that exists already; without a plugin it runs its body.
"""

import torch
from torch import Tensor
from torch.nn.functional import multi_head_attention_forward

import opbridge


def example_arguments() -> tuple:
    """Of the ranks that the model has; sizes and the number of heads are found in the model."""
    width, heads = 96, 3
    weights = [torch.randn(3 * width, width), torch.randn(3 * width), torch.randn(width, width), torch.randn(width)]
    return (torch.randn(1, 9, width), *weights, heads)


@opbridge.operator("examples::attention", samples=lambda: [opbridge.Sample(example_arguments())])
def attention(
    x: Tensor, in_weight: Tensor, in_bias: Tensor, out_weight: Tensor, out_bias: Tensor, heads: int
) -> Tensor:
    """Self-attention of a batch of sequences (batch, length, width), with its projections."""
    sequence = x.transpose(0, 1)
    result, _ = multi_head_attention_forward(
        sequence, sequence, sequence, x.shape[-1], heads, in_weight, in_bias, None, None, False, 0.0,
        out_weight, out_bias, training=False, need_weights=False,
    )  # fmt: skip
    return result.transpose(0, 1)


class Transformer(torch.nn.Module):
    """Two blocks of a small vision transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(torch.nn.MultiheadAttention(32, 4, batch_first=True) for _ in range(2))
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(32) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for block, norm in zip(self.blocks, self.norms, strict=True):
            y = norm(x).transpose(0, 1)
            x = x + self._attend(block, y).transpose(0, 1)
        return x

    def _attend(self, block: torch.nn.MultiheadAttention, y: Tensor) -> Tensor:
        result, _ = multi_head_attention_forward(
            y, y, y, 32, 4, block.in_proj_weight, block.in_proj_bias, None, None, False, 0.0,
            block.out_proj.weight, block.out_proj.bias, training=False, need_weights=False,
        )  # fmt: skip
        return result


def model() -> tuple:
    torch.manual_seed(0)
    module = Transformer().eval()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return module, (torch.randn(1, 12, 32),)
