"""A bias, an activation, a gain and limits in one step (StyleGAN 2, arXiv:1912.04958)."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from opbridge.catalog.declare.operator import operator
from opbridge.catalog.declare.spec import Sample
from opbridge.vision.formulas.overlap import check_choice

ACTIVATIONS: dict[str, tuple[Callable[[Tensor, float], Tensor], float]] = {
    "linear": (lambda x, alpha: x, 1.0),
    "relu": (lambda x, alpha: x.relu(), math.sqrt(2)),
    "lrelu": (lambda x, alpha: functional.leaky_relu(x, alpha), math.sqrt(2)),
    "tanh": (lambda x, alpha: x.tanh(), 1.0),
    "sigmoid": (lambda x, alpha: x.sigmoid(), 1.0),
    "elu": (lambda x, alpha: functional.elu(x), 1.0),
    "selu": (lambda x, alpha: functional.selu(x), 1.0),
    "softplus": (lambda x, alpha: functional.softplus(x), 1.0),
    "swish": (lambda x, alpha: x * x.sigmoid(), math.sqrt(2)),
}
"""Each activation, and its gain by default."""


def _samples() -> list[Sample]:
    generator = torch.Generator().manual_seed(0)
    x, bias = 2 * torch.randn(2, 3, 4, generator=generator), torch.randn(3, generator=generator)
    return [
        *(Sample((x, bias, 1, act), name=act) for act in ACTIVATIONS),
        Sample((x, None, 1, "lrelu", 0.1, 1.5, 1.0), name="limits, without a bias"),
        Sample((x, torch.randn(4, generator=generator), -1, "relu", 0.2, 2.0), name="along the last axis"),
    ]


@operator("opbridge_vision::bias_act", samples=_samples)
def bias_act(
    input: Tensor,
    bias: Tensor | None = None,
    dim: int = 1,
    act: str = "linear",
    alpha: float = 0.2,
    gain: float | None = None,
    clamp: float | None = None,
) -> Tensor:
    """``act(input + bias) * gain``, limited to ±``clamp``; mmcv's ``fused_bias_leakyrelu`` is act ``"lrelu"``.

    Args:
        input: The numbers, of any sizes.
        bias: A number for each element along ``dim``; None for no bias.
        dim: The axis of the bias.
        act: The name of an activation: linear, relu, lrelu, tanh, sigmoid, elu, selu, softplus or swish.
        alpha: The slope of ``"lrelu"`` below zero.
        gain: The factor; None for the square root of 2 after relu, lrelu and swish, and 1 after the others.
        clamp: The largest absolute value of a result; None for no limit.

    Raises:
        InputError: There is no such activation.
    """
    check_choice("act", act, tuple(ACTIVATIONS))
    function, usual_gain = ACTIVATIONS[act]
    if bias is not None:
        axis = dim % input.dim()
        input = input + bias.reshape([-1 if k == axis else 1 for k in range(input.dim())])
    result = function(input, alpha) * (usual_gain if gain is None else gain)
    return result if clamp is None else result.clamp(-clamp, clamp)
