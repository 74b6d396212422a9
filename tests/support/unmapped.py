"""Three operators that nothing maps to ONNX, whatever the catalog learns: they leave torch for NumPy."""

from __future__ import annotations

import torch
from torch import Tensor


@torch.library.custom_op("opbridge_tests::lost", mutates_args=())
def lost(x: Tensor) -> Tensor:
    """The Airy function, as far as the exporter knows."""
    return torch.special.airy_ai(torch.from_numpy(x.numpy()))


@torch.library.custom_op("opbridge_tests::forgotten", mutates_args=())
def forgotten(x: Tensor) -> Tensor:
    """Another."""
    return torch.special.bessel_j0(torch.from_numpy(x.numpy()))


@torch.library.custom_op("opbridge_tests::abandoned", mutates_args=())
def abandoned(x: Tensor) -> Tensor:
    """A third."""
    return torch.special.scaled_modified_bessel_k0(torch.from_numpy(x.numpy()))


for operator in (lost, forgotten, abandoned):
    operator.register_fake(torch.empty_like)
