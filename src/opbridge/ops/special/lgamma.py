"""The logarithm of the gamma function."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opbridge.numerics.series import chebyshev, in_working_precision
from opbridge.spec import decomposition

# Chebyshev coefficients, from 40 digits: of lgamma(z) / ((z - 1) (z - 2)) over z = 2 + t ...
_NEAR = (
    *(0.44148902545501423, -0.11119580321752523, 0.01951044826068884, -0.003922461463025264),
    *(0.0008478989895953857, -0.00019153855341365593, 4.454470184975607e-05, -1.05728743735943e-05),
    *(2.5474336873408417e-06, -6.208535880776316e-07, 1.5268677399071546e-07, -3.782637660291326e-08),
    *(9.428100823624284e-09, -2.361999702184645e-09, 5.943541905817546e-10, -1.501312977072867e-10),
    *(3.8050196458110534e-11, -9.672485299656325e-12, 2.465348198355661e-12, -6.298868140791711e-13),
    *(1.6128460030283787e-13, -4.137949206814042e-14, 1.0635701227757898e-14, -2.7382420786652826e-15),
    *(7.060670507214892e-16, -1.8232177141662118e-16, 4.714169006756272e-17, -1.2204107319639856e-17),
    *(3.1630451661790255e-18,),
)
# ... and of z times what Stirling's formula leaves, over 1/z = (1 + t) / 6.
_FAR = (
    *(0.08322010841305535, -0.0001503131693901069, -3.6608757678318726e-05, 5.38244273114798e-07),
    *(5.565395514939725e-08, -3.2388806260360773e-09, -1.1447537631295206e-10, 2.500663611319103e-11),
    *(-7.158295731284409e-13, -1.7817116487112267e-13, 2.3538238326738805e-14, -4.719341157133132e-17),
    *(-3.433692246197218e-16, 4.3402227155236187e-17, 5.008962246422417e-19, -9.6702796995806e-19),
)
_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


@decomposition("aten::lgamma")
@in_working_precision
def lgamma(self: Tensor) -> Tensor:
    """The logarithm of the absolute value of the gamma function; infinite at 0, -1, -2, ...

    lgamma(Tensor self) -> Tensor

    Over [1, 3) the two zeros are divided out, so that results near them keep their digits. From 3 on it is Stirling's
    formula (DLMF 5.11.1) with a fitted rest. Below 1 lgamma(x) = lgamma(x + 1) - log x, below 0 the reflection
    formula (DLMF 5.5.3), with sin taken of the distance to the nearest integer. A number as large as -inf is an
    integer, that is a pole.
    """
    is_negative = self < 0
    # z - 2, where adding to self first would round.
    offset = torch.where(is_negative, -1 - self, torch.where(self < 1, self - 1, self - 2))
    near = offset * (offset + 1) * chebyshev(offset.clamp(-1, 1), _NEAR)
    z = offset.clamp_min(1) + 2
    far = (z - 0.5) * (torch.log(z) - 1) + (_HALF_LOG_2PI - 0.5) + chebyshev(6 / z - 1, _FAR) / z
    core = torch.where(offset < 1, near, far)
    distance = (self - torch.round(self)).abs()
    reflected = math.log(math.pi) - torch.log(torch.sin(math.pi * distance)) - core
    positive = torch.where(self < 1, core - torch.log(self), core)
    is_pole = is_negative & (torch.round(self) == self)
    return torch.where(is_pole, math.inf, torch.where(is_negative, reflected, positive))
