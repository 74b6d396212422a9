"""The Airy function Ai."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.series import chebyshev, in_working_precision

# Chebyshev coefficients, from 40 digits: of Ai(x) over x = 3 t - 1 ...
_NEAR = (
    *(0.06078525685079726, 0.18996030881729123, -0.250924387032336, -0.09512014013503055),
    *(0.20236324198370076, -0.06418728306305249, -0.026814703186039963, 0.024051904281273857),
    *(-0.00413259164974895, -0.0020196817905494225, 0.0011250768750654559, -0.00011697538709676606),
    *(-7.125499253060682e-05, 2.8167833107042442e-05, -1.7594742389691562e-06, -1.4587201524168717e-06),
    *(4.388747958436033e-07, -1.4627095866197506e-08, -1.9495992841846798e-08, 4.660552774163884e-09),
    *(-5.106245117904234e-11, -1.8343326708789198e-10, 3.5857642041278925e-11, 2.658241327479573e-13),
    *(-1.2805447574198059e-12, 2.0885896604502407e-13, 4.8741837202287105e-15, -6.895080927885035e-15),
    *(9.51965014570017e-16, 3.5978991422145034e-17, -2.9502705833721254e-17, 3.483989442459416e-18),
)
# ... of 2 sqrt(pi) x^(1/4) exp(zeta) Ai(x), zeta = 2/3 x^(3/2), over zeta(2) / zeta = (1 + t) / 2 ...
_FAR = (
    *(0.9844053049171552, -0.014792784850104199, 0.0007327177465426715, -6.12595423417825e-05),
    *(6.83476697557269e-06, -9.237229735403982e-07, 1.436225340438052e-07, -2.489319422322096e-08),
    *(4.709793440054328e-09, -9.583863708112733e-10, 2.0745855483677591e-10, -4.737267332192277e-11),
    *(1.1336099808224236e-11, -2.827706782319351e-12, 7.320712095125598e-13, -1.9599793911089723e-13),
    *(5.4101162570683925e-14, -1.5356466802223836e-14, 4.472340393300025e-15, -1.3338094674756683e-15),
    *(4.066582046456231e-16, -1.265583225645289e-16, 4.015126334015871e-17, -1.2969972135960937e-17),
    *(4.2613499074124e-18,),
)
# ... and of P and zeta Q over (zeta(4) / zeta)² = (1 + t) / 2, where
# sqrt(pi) x^(1/4) Ai(-x) = P cos(zeta - pi/4) + Q sin(zeta - pi/4).
_P = (
    *(0.9993708890742778, -0.0006216836584374116, 7.181193774368645e-06, -2.316269813501758e-07),
    *(1.3216283888528755e-08, -1.0938736172758127e-09, 1.1794620737908535e-10, -1.5518841909929856e-11),
    *(2.386927411492466e-12, -4.16552889201035e-13, 8.071678110741467e-14, -1.708757321110567e-14),
    *(3.902945148540815e-15, -9.523976784907064e-16, 2.4632810885752603e-16, -6.709077463464858e-17),
    *(1.913939683718707e-17, -5.69308436211377e-18),
)
_Q = (
    *(0.06882170556308001, -0.0006089151840832694, 1.3174151014089972e-05, -6.014071912908298e-07),
    *(4.327537342298499e-08, -4.247731732954726e-09, 5.232285376834493e-10, -7.672290975115024e-11),
    *(1.2923809452698712e-11, -2.43852975710829e-12, 5.059047237872084e-13, -1.1378513792256329e-13),
    *(2.7441377308322258e-14, -7.03448211263258e-15, 1.9032114367198917e-15, -5.403040541409308e-16),
    *(1.6016711026585234e-16, -4.9375274403528065e-17, 1.5773435797781153e-17, -5.206129581838458e-18),
    *(1.7706787947400164e-18, -6.191669620783275e-19, 2.2214932182107093e-19),
)
_ZETA_2, _ZETA_4 = (2 / 3 * x**1.5 for x in (2, 4))


@decomposition("aten::special_airy_ai")
@in_working_precision
def special_airy_ai(x: Tensor) -> Tensor:
    """Ai of each element; NaN at both infinities as in PyTorch.

    special_airy_ai(Tensor x) -> Tensor

    A polynomial is used between -4 and 2, and fitted factors of the asymptotic expansions outside (DLMF 9.7.5, 9.7.9).
    """
    near = chebyshev(((x + 1) / 3).clamp(-1, 1), _NEAR)
    large = x.clamp_min(2)
    zeta = 2 / 3 * large * torch.sqrt(large)
    decaying = chebyshev(2 * _ZETA_2 / zeta - 1, _FAR) * torch.exp(-zeta) / (2 * math.sqrt(math.pi) * large**0.25)
    result = torch.where(x <= 2, torch.where(x < -4, _waves(-x.clamp_max(-4)), near), decaying)
    return torch.where(x.isinf(), math.nan, result)


def _waves(size: Tensor) -> Tensor:
    """Ai(-size) for sizes of 4 or more."""
    zeta = 2 / 3 * size * torch.sqrt(size)
    t = 2 * (_ZETA_4 / zeta) ** 2 - 1
    cosine, sine = torch.cos(zeta) * math.sqrt(0.5), torch.sin(zeta) * math.sqrt(0.5)
    # The addition theorems are used for the phase zeta - pi/4.
    in_phase = chebyshev(t, _P) * (cosine + sine)
    quadrature = chebyshev(t, _Q) / zeta * (sine - cosine)
    return (in_phase + quadrature) / (math.sqrt(math.pi) * size**0.25)
