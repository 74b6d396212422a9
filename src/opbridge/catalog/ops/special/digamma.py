"""The logarithmic derivative of the gamma function."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.series import chebyshev, in_working_precision

# Chebyshev coefficients, from 40 digits: of digamma(z) / (z - zero) over z = 2 + t ...
_NEAR = (
    *(0.8508141002274594, -0.30691795316595705, 0.06960086856205178, -0.01712297234345182),
    *(0.004374961886424303, -0.0011401796377915106, 0.00030046127392236794, -7.969172661686522e-05),
    *(2.1218853925722328e-05, -5.6631596935365925e-06, 1.5136717505341737e-06, -4.0495026233355134e-07),
    *(1.083979923064392e-07, -2.9026750711369042e-08, 7.774554697983642e-09, -2.082649195692377e-09),
    *(5.579524084715322e-10, -1.4948718863979587e-10, 4.005228073341035e-11, -1.0731515178725395e-11),
    *(2.8754217843517632e-12, -7.704533926086572e-13, 2.0644004026236004e-13, -5.53150434659318e-14),
    *(1.482155285389004e-14, -3.971411389284323e-15, 1.0641344625722717e-15, -2.8513362471718133e-16),
    *(7.640126526131413e-17, -2.047164716811876e-17, 5.485359583436558e-18),
)
# ... and of z² (digamma(z) - log z + 1 / (2 z)) over 1/z = (1 + t) / 6.
_FAR = (
    *(-0.08299839836364074, 0.0004434200988292258, 0.00010618500237069332, -2.5647821180332563e-06),
    *(-2.448431601258726e-07, 2.0471093116969346e-08, 4.654324791881221e-10, -1.8585533832339603e-10),
    *(9.186943570233104e-12, 1.3191080931081546e-12, -2.507594106624228e-13, 7.689276815990754e-15),
    *(3.3458944063178387e-15, -5.970787878757101e-16, 1.7064043217945622e-17, 1.103909500816641e-17),
    *(-2.295758563339518e-18,),
)
# The zero of digamma between 1 and 2, in two parts of which float32 holds the first exactly.
_ZERO = (1.4616321325302124, 1.2438149938918909e-08)


@decomposition("aten::digamma")
@in_working_precision
def digamma(self: Tensor) -> Tensor:
    """The derivative of lgamma; infinite at 0, NaN at -1, -2, ...

    digamma(Tensor self) -> Tensor

    On [1, 3) the zero of digamma is factored out, so that results near it are accurate. From 3 on the asymptotic
    expansion (DLMF 5.11.2) is used with a fitted remainder. Below 1 digamma(x) = digamma(x + 1) - 1 / x, and below 0
    the reflection formula (DLMF 5.5.4) is used.
    """
    is_negative = self < 0
    z = torch.where(is_negative, 1 - self, torch.where(self < 1, self + 1, self))
    near = ((z - _ZERO[0]) - _ZERO[1]) * chebyshev((z - 2).clamp(-1, 1), _NEAR)
    inverse = 1 / z.clamp_min(3)
    far = torch.log(z) - 0.5 * inverse + inverse * inverse * chebyshev(6 * inverse - 1, _FAR)
    core = torch.where(z < 3, near, far)
    offset = self - torch.round(self)
    # Only the sine is used, because ONNX Runtime does not support Tan in float64.
    cotangent = torch.sin(math.pi * (0.5 - offset.abs())) / torch.sin(math.pi * offset)
    reflected = torch.where(offset == 0, math.nan, core - math.pi * cotangent)
    return torch.where(is_negative, reflected, torch.where(self < 1, core - 1 / self, core))
