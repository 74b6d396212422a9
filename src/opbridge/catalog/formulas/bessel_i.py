"""The modified Bessel functions of the first kind of order 0 and 1, with exp(-|x|) as a factor."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.formulas.series import at_least, chebyshev

__all__ = ["scaled_i0", "scaled_i1"]

_TERMS = {torch.float32: 18, torch.float64: 30}
"""The number of terms of the power series after which the remainder at x = 8 is below the last digit."""

# Chebyshev coefficients, computed with 40 digits, of exp(-x) sqrt(x) I(x) in t, where 16/x = 1 + t: for order 0 ...
_FAR_0 = (
    *(0.4022452055070544, 0.0033691164782556943, 6.889758346916825e-05, 2.8913705208347567e-06),
    *(2.0489185894690638e-07, 2.266668990498178e-08, 3.3962320257083865e-09, 4.94060238822497e-10),
    *(1.1889147107846439e-11, -3.1499165279632416e-11, -1.3215811840447713e-11, -1.7941785315068062e-12),
    *(7.180124451383666e-13, 3.8527783827421426e-13, 1.54008621752141e-14, -4.150569347287222e-14),
    *(-9.554846698828307e-15, 3.8116806693526224e-15, 1.7725601330565263e-15, -3.425485619677219e-16),
    *(-2.8276239805165836e-16, 3.4612228676974606e-17, 4.465621420296762e-17, -4.830504485944218e-18),
    *(-7.233180487874774e-18, 9.921475412175305e-19, 1.1936508908457661e-18),
)
# ... and for order 1.
_FAR_1 = (
    *(0.38928811750914005, -0.009761097491361469, -0.00011058893876262371, -3.882564808877691e-06),
    *(-2.512236237870209e-07, -2.6314688468895196e-08, -3.835380385964237e-09, -5.589743462196584e-10),
    *(-1.8974958123505413e-11, 3.2526035830154884e-11, 1.4125807436613782e-11, 2.0356285441470896e-12),
    *(-7.198551776245908e-13, -4.0835511110921974e-13, -2.1015418427726643e-14, 4.272440016711951e-14),
    *(1.0420276984128802e-14, -3.8144030724370075e-15, -1.8803547755107825e-15, 3.308202310920928e-16),
    *(2.96262899764595e-16, -3.209525921993424e-17, -4.6503053684893605e-17, 4.414348323071745e-18),
    *(7.517296310842124e-18, -9.314178867328502e-19, -1.2421932751946678e-18),
)


def scaled_i0(x: Tensor) -> Tensor:
    """exp(-|x|) I0(x): for |x| up to 8 the power series (DLMF 10.25.2, all terms positive), above a fit in 1/x."""
    return _scaled(x.abs(), 0, _FAR_0)


def scaled_i1(x: Tensor) -> Tensor:
    """exp(-|x|) I1(x), which is odd in x, computed like :func:`scaled_i0`."""
    size = x.abs()
    result = _scaled(size, 1, _FAR_1)
    return torch.where(x < 0, -result, result)


def _scaled(size: Tensor, order: int, far: tuple[float, ...]) -> Tensor:
    small = size.clamp_max(8)
    quarter = small * small / 4
    series = torch.ones_like(quarter)
    for k in range(_TERMS[size.dtype], 0, -1):
        series = series * quarter * (1 / (k * (k + order))) + 1
    near = torch.exp(-small) * series
    if order:
        near = near * small / 2
    large = at_least(size, 8)
    distant = chebyshev(16 / large - 1, far) / torch.sqrt(large)
    return torch.where(size.isnan(), size, torch.where(size <= 8, near, distant))
