"""The complementary error function with its tail, as ONNX nodes or as a custom node with a kernel, and scaled."""

from __future__ import annotations

import math
from typing import Any

import torch
from onnxscript import BFLOAT16, FLOAT
from onnxscript import opset18 as op
from torch import Tensor

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.declare.nan import keeps_nan
from opbridge.catalog.declare.spec import body_for, decomposition, kernel_translation
from opbridge.catalog.formulas.element_types import FLOATS
from opbridge.catalog.formulas.series import chebyshev, in_working_precision
from opbridge.kernels.declared import kernel_for

kernel_for("opbridge::Erfc", "erfc.h")

# Chebyshev coefficients, from 40 digits, of (1 + 2 z) exp(z²) erfc(z) over t = (z - 2) / (z + 2).
_SCALED = (
    *(1.1760066555883004, 0.025779673870048207, -0.10659315067778503, 0.03880887957448382),
    *(-0.005414899930893725, -0.00040815257282372384, 0.00019843768248553527, 9.842532776048127e-06),
    *(-7.763265561062859e-06, -7.174001457529682e-07, 3.140694955581843e-07, 6.188423669546144e-08),
    *(-9.890619934492214e-09, -4.59539962251018e-09, -7.180587728177086e-11, 2.6296183336364044e-10),
    *(4.867734056607904e-11, -8.026804193759018e-12, -4.779133570845298e-12, -4.3470126478464435e-13),
    *(2.412314273846194e-13, 8.610900521277247e-14, 2.59476489837122e-15, -5.872254381501051e-15),
    *(-1.7019328812344317e-15, 1.387358712117345e-17, 1.4092174407259632e-16, 3.84127549399939e-17),
    *(-7.115293125772235e-19, -3.480409461122767e-18),
)


def _scaled(size: Tensor, ratio: Tensor) -> Tensor:
    """exp(z²) erfc(z) of numbers that are not negative, with ``ratio`` = (z - 2) / (z + 2).

    The variable is that of Shepherd and Laframboise, "Chebyshev approximation of (1 + 2x) exp(x²) erfc x", 1981.
    """
    return chebyshev(ratio, _SCALED) / (1 + 2 * size)


@decomposition("aten::special_erfcx", overrides="torch's mapping overflows, and loses the tail of erfc")
@in_working_precision
def special_erfcx(self: Tensor) -> Tensor:
    """exp(x²) erfc(x) of each element.

    special_erfcx(Tensor self) -> Tensor

    Below 0 the result is 2 exp(x²) - erfcx(-x).
    """
    size = self.abs()
    positive = _scaled(size, torch.where(size == math.inf, 1, (size - 2) / (size + 2)))
    return torch.where(self < 0, 2 * torch.exp(self * self) - positive, positive)


@decomposition("aten::erfc", overrides="torch's mapping is 1 - erf, which is 0 in the tail")
@in_working_precision
def erfc(self: Tensor) -> Tensor:
    """1 - erf(x), accurate also for small results.

    erfc(Tensor self) -> Tensor

    From 0.5 on the result is erfcx(x) exp(-x²), and 0 from 32 on. The square is split as x² = h² + (x - h) (x + h) with
    an h of few digits, because exp amplifies its rounding error (W. J. Cody, "Rational Chebyshev approximations for the
    error function", 1969).
    """
    size = self.clamp(0.5, 32.0)
    coarse = torch.round(size * 64) * (1 / 64)
    power = torch.exp(-coarse * coarse) * torch.exp((coarse - size) * (coarse + size))
    # Each factor is constant where the other one varies, and a product is much faster than a selection.
    near = (1 - torch.erf(self.clamp_max(0.5))) / math.erfc(0.5)
    result = near * (_scaled(size, (size - 2) / (size + 2)) * power)
    return torch.where(self.isnan(), self, result) if keeps_nan() else result


@kernel_translation("aten::erfc")
def erfc_with_kernel(self: Any) -> Any:
    """``erfc`` as a custom node with a kernel.

    erfc(Tensor self) -> Tensor
    """
    if self.dtype == BFLOAT16.dtype:
        return op.Cast(custom_node("opbridge::Erfc", op.Cast(self, to=FLOAT.dtype)), to=BFLOAT16.dtype)
    return custom_node("opbridge::Erfc", self if self.dtype in FLOATS else op.Cast(self, to=FLOAT.dtype))


@body_for("opbridge::Erfc")
def erfc_body(x: Tensor) -> Tensor:
    """The nodes of the mapping without a kernel."""
    return torch.erfc(x)
