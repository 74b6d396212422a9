"""Models that are right and ill-conditioned: rounding errors grow in them, and no engine is wrong for that."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from opbridge.capture.entry import Entry

__all__ = ["AT_THE_EDGES", "OTHERWISE_BY_DESIGN", "SOUND", "long_sum"]

ROWS = ({0: torch.export.Dim.DYNAMIC},)


class _Model(nn.Module):
    """A function of a tensor, with constants."""

    def __init__(self, function: Callable[..., Any], **constants: Tensor) -> None:
        super().__init__()
        self.function, self.names = function, tuple(constants)
        for name, value in constants.items():
            self.register_buffer(name, value)

    def forward(self, x: Tensor) -> Any:
        return self.function(x, *(getattr(self, name) for name in self.names))


def _entry(function: Callable[..., Any], x: Tensor, **constants: Tensor) -> Entry:
    return Entry(function.__name__, _Model(function, **constants).eval(), (x,), dynamic_shapes=ROWS)


def _random(*shape: int) -> Tensor:
    torch.manual_seed(len(shape))
    return torch.randn(shape)


def _softmax_chain(x: Tensor, weights: Tensor) -> Tensor:
    for weight in weights:
        x = torch.softmax(x @ weight, -1) * 16
    return torch.log_softmax(x, -1)


def _near_singular(x: Tensor, hilbert: Tensor) -> Tensor:
    return torch.linalg.solve(hilbert + 1e-6 * torch.diag_embed(x), x[..., None])


def _logistic_map(x: Tensor) -> Tensor:
    x = torch.sigmoid(x)
    for _ in range(60):
        x = 3.9 * x * (1 - x)
    return x


def _recurrence(x: Tensor, weight: Tensor) -> Tensor:
    state = torch.zeros_like(x)
    for _ in range(80):
        state = torch.tanh(state @ weight + x)
    return state


def _round_trips(x: Tensor) -> tuple[Tensor, Tensor]:
    powers = torch.exp(40 * torch.log(1 + x.abs())) / torch.exp(40 * torch.log1p(x.abs()))
    for _ in range(12):
        x = torch.log(torch.exp(x + 8) + 0.5) - 8
    return x, powers


def _cancellation(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return (x + 3e4) - 3e4, torch.cos(x * 1e-3) - 1, torch.sqrt(x * x + 1e-6) - x.abs()


def _variance_by_squares(x: Tensor) -> Tensor:
    return (x * x).mean(-1) - x.mean(-1) ** 2


def _variance(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.var(-1), nn.functional.layer_norm(x, x.shape[-1:])


def _near_poles(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    angle = torch.round(x * 4) * torch.pi
    return 1 / torch.sin(angle + 1e-3 * x), torch.tan(angle + 1.5707), torch.acos(1 - 1e-6 * x.abs())


def _polynomial(x: Tensor) -> Tensor:
    root, product = torch.sigmoid(x) * 20, torch.ones_like(x)
    coefficients = [1.0]
    for zero in range(1, 9):
        coefficients = [a - zero * b for a, b in zip([*coefficients, 0.0], [0.0, *coefficients], strict=True)]
    product = torch.zeros_like(x)
    for coefficient in coefficients:
        product = product * root + coefficient
    return product


def _products(x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.cumprod(1 + 0.3 * x, -1), torch.cumsum(x, -1)


def _deep(x: Tensor, weights: Tensor) -> Tensor:
    for weight in weights:
        x = x + nn.functional.gelu(nn.functional.layer_norm(x, x.shape[-1:]) @ weight)
    return x


def _near_ties(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    scores = torch.sigmoid(1e-5 * (x @ weight))
    values, places = torch.topk(scores, 4)
    return values, places, scores.argmax(-1)


def _suppressed(x: Tensor, weight: Tensor) -> Tensor:
    from torchvision.ops import nms

    boxes = x @ weight
    corners = torch.cat([boxes[:, :2], boxes[:, :2] + 5 + 1e-3 * boxes[:, 2:].abs()], -1)
    return corners[nms(corners, torch.sigmoid(1e-4 * boxes.sum(-1)), 0.5)]


def _quantized(x: Tensor, weight: Tensor) -> Tensor:
    return torch.round((x @ weight) * 64) / 64


def _sum(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.sum(), x.mean()


def _sum_alone(x: Tensor) -> Tensor:
    return x.sum()


def _norm(x: Tensor) -> Tensor:
    tiny = x * 1e-18
    return tiny / tiny.square().sum(-1, keepdim=True).sqrt().clamp(min=1e-30)


def _hilbert(size: int) -> Tensor:
    numbers = torch.arange(size, dtype=torch.float64)
    return (1 / (numbers[:, None] + numbers + 1)).float()


def long_sum(terms: int, *, mean: bool = True) -> Entry:
    """The sum of so many float32 numbers, all positive, and their mean."""
    torch.manual_seed(0)
    return _entry(_sum if mean else _sum_alone, torch.rand(terms))


def _deep_entry(dtype: torch.dtype) -> Entry:
    return _entry(_deep, _random(6, 32).to(dtype), weights=(_random(24, 32, 32) * 0.3).to(dtype))


SOUND: dict[str, Callable[[], Entry]] = {
    "a chain of 32 softmaxes": lambda: _entry(_softmax_chain, _random(4, 24), weights=_random(32, 24, 24)),
    "a near-singular solve": lambda: _entry(_near_singular, _random(4, 7), hilbert=_hilbert(7)),
    "a sum of 1e6 terms": functools.partial(long_sum, 1_000_000),
    "a chaotic map of 60 steps": lambda: _entry(_logistic_map, _random(4, 16)),
    "a chaotic recurrence of 80 steps": lambda: _entry(_recurrence, _random(4, 24), weight=_random(24, 24)),
    "round trips of exp and log": lambda: _entry(_round_trips, _random(4, 16)),
    "differences that cancel": lambda: _entry(_cancellation, _random(4, 16)),
    "a variance by squares": lambda: _entry(_variance_by_squares, _random(4, 64) + 300),
    "the variance of large numbers": lambda: _entry(_variance, _random(4, 64) + 1e4),
    "values near poles": lambda: _entry(_near_poles, _random(4, 16)),
    "a polynomial near its roots": lambda: _entry(_polynomial, _random(4, 16)),
    "long products and sums": lambda: _entry(_products, _random(4, 400)),
    "norms of tiny vectors": lambda: _entry(_norm, _random(4, 16)),
    "24 layers in float16": lambda: _deep_entry(torch.float16),
    "24 layers in bfloat16": lambda: _deep_entry(torch.bfloat16),
    "near ties of top-k and argmax": lambda: _entry(_near_ties, _random(8, 16), weight=_random(16, 40)),
    "near ties of suppressed boxes": lambda: _entry(_suppressed, _random(24, 8), weight=_random(8, 4) * 3),
    "rounding of computed numbers": lambda: _entry(_quantized, _random(16, 64), weight=_random(64, 64)),
}
"""By name. Each has one input, whose first dimension is dynamic."""

AT_THE_EDGES = {**SOUND, "a sum of 1e6 terms": functools.partial(long_sum, 1_000_000, mean=False)}
"""The same for sizes at the edge. The mean of nothing is one of planted_faults.py: ONNX Runtime's is 0."""

OTHERWISE_BY_DESIGN = {
    "long products and sums": "ONNX Runtime adds a CumSum in float32, which overflows; PyTorch adds in float64",
    "norms of tiny vectors": "ONNX Runtime's Clip without a maximum makes the largest number of infinity",
    "24 layers in bfloat16": "where a variance overflows, ONNX Runtime's normalization gives NaN, PyTorch's 0",
    "near ties of top-k and argmax": "which of several equal numbers or NaN is first, is nobody's rule",
    "near ties of suppressed boxes": "nor which of several boxes with a corner at NaN or infinity",
}
"""Those that give other results at special values, and why: rightly reported, and no fault of the exported model."""
