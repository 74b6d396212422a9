"""A Swin transformer block: shifted windows (torch.roll), relative position bias, attention mask.

The bias is a parameter. Attention picks another memory layout when its bias requires grad, and the export then fails
on a ``view``; opbridge freezes parameters while it captures, and gives the model back as it was.

    opbridge export examples/tutorial/swin_roll.py:model -o build/swin_roll
"""

import torch
from torch import nn

WINDOW = 7


def split_windows(x):
    """(batch, height, width, channels) to (batch x windows, WINDOW², channels)."""
    batch, height, width, channels = x.shape
    x = x.view(batch, height // WINDOW, WINDOW, width // WINDOW, WINDOW, channels)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, WINDOW * WINDOW, channels)


def join_windows(windows, height: int, width: int):
    """The inverse of :func:`split_windows`."""
    x = windows.view(-1, height // WINDOW, width // WINDOW, WINDOW, WINDOW, windows.shape[-1])
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, height, width, windows.shape[-1])


def relative_positions():
    """For every pair of pixels of a window, the row of the bias table that belongs to their offset."""
    rows, columns = torch.meshgrid(torch.arange(WINDOW), torch.arange(WINDOW), indexing="ij")
    rows, columns = rows.flatten(), columns.flatten()
    down = rows[:, None] - rows[None, :] + WINDOW - 1
    right = columns[:, None] - columns[None, :] + WINDOW - 1
    return down * (2 * WINDOW - 1) + right


def shift_mask(height: int, width: int, shift: int):
    """After the roll a window holds pixels from opposite borders: -100 between pixels that were not neighbours."""
    region = torch.zeros(1, height, width, 1)
    bands = (slice(0, -WINDOW), slice(-WINDOW, -shift), slice(-shift, None))
    for number, (band, column) in enumerate((a, b) for a in bands for b in bands):
        region[:, band, column] = number
    region = split_windows(region).squeeze(-1)
    return torch.where(region[:, None, :] == region[:, :, None], 0.0, -100.0)


class SwinBlock(nn.Module):
    def __init__(self, channels: int, heads: int, size: int, shift: int) -> None:
        super().__init__()
        self.heads, self.shift = heads, shift
        self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.qkv, self.projection = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.mlp = nn.Sequential(nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels))
        self.bias_table = nn.Parameter(0.02 * torch.randn((2 * WINDOW - 1) ** 2, heads))
        self.register_buffer("positions", relative_positions())
        windows = (size // WINDOW) ** 2
        mask = shift_mask(size, size, shift) if shift else torch.zeros(windows, WINDOW**2, WINDOW**2)
        self.register_buffer("mask", mask)

    def attention(self, windows):
        count, pixels, channels = windows.shape
        qkv = self.qkv(windows).view(count, pixels, 3, self.heads, channels // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        bias = self.bias_table[self.positions].permute(2, 0, 1)
        # (windows of one image, heads, pixels, pixels), the same for every image of the batch
        bias = bias[None] + self.mask[:, None]
        bias = bias.repeat(count // self.mask.shape[0], 1, 1, 1)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        return self.projection(mixed.transpose(1, 2).reshape(count, pixels, channels))

    def forward(self, x):
        _, height, width, _ = x.shape
        rolled = torch.roll(self.norm1(x), shifts=(-self.shift, -self.shift), dims=(1, 2))
        attended = join_windows(self.attention(split_windows(rolled)), height, width)
        x = x + torch.roll(attended, shifts=(self.shift, self.shift), dims=(1, 2))
        return x + self.mlp(self.norm2(x))


def model():
    torch.manual_seed(0)
    size = 2 * WINDOW
    blocks = nn.Sequential(SwinBlock(32, 4, size, shift=0), SwinBlock(32, 4, size, shift=WINDOW // 2))
    return {
        "model": blocks.eval(),
        "args": (torch.randn(2, size, size, 32),),
        "dynamic_shapes": ({0: torch.export.Dim("batch")},),
        "input_names": ["x"],
        "output_names": ["y"],
    }
