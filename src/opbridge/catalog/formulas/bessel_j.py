"""Parts that the Bessel functions J and Y of order 0 and 1 share: amplitude and phase for large x."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opbridge.catalog.formulas.series import chebyshev

__all__ = ["BORDER", "far", "j0_near", "j1_near"]

BORDER = 5.0
"""Up to this x, J and Y are polynomials in x²; above, amplitude and phase are polynomials in 1/x²."""

# Chebyshev coefficients, computed with 40 digits: of J0(x) / ((x² - a²) (x² - b²)), where a and b are its first zeros
# and x² = 12.5 (1 + t) ...
_NEAR_0 = (
    *(0.003433775195443006, -0.001974794511586004, 0.0002472802343211527, -1.7951655945298798e-05),
    *(8.614299472476033e-07, -2.9521425632684864e-08, 7.609233569353203e-10, -1.531306324653633e-11),
    *(2.475309497955091e-13, -3.2866707304697332e-15, 3.6501313955036886e-17, -3.4418858692258494e-19),
)
# ... of J1(x) / (x (x² - c²)), where c is its first zero ...
_NEAR_1 = (
    *(-0.018028415801166292, 0.013661487082063361, -0.0021632651559238044, 0.0001909490103660189),
    *(-1.0816174736957452e-05, 4.278886056259686e-07, -1.251337564352681e-08, 2.8183488843903415e-10),
    *(-5.042568567278396e-12, 7.34347631506432e-14, -8.876744102278278e-16, 9.051454724528835e-18),
    *(-7.891777052481785e-20,),
)
# ... and of P(x) and x Q(x), where 50/x² = 1 + t and sqrt(pi x / 2) (J + i Y) = (P + i Q) exp(i phase).
_AMPLITUDES = {
    0: (
        (
            *(0.9986523398776954, -0.00132937162125028, 1.761305551290559e-05, -6.319367118733069e-07),
            *(3.948825587093808e-08, -3.5409678948019087e-09, 4.103246366872386e-10, -5.765747662655223e-11),
            *(9.423105578391987e-12, -1.7401405706283885e-12, 3.5557750052411783e-13, -7.914641501338115e-14),
            *(1.8959456362961828e-14, -4.841483019175697e-15, 1.3078555195901338e-15, -3.714050821413154e-16),
            *(1.103023177871277e-16, -3.410936210498114e-17, 1.0942187869810236e-17, -3.629905673795297e-18),
        ),
        (
            *(-0.12364702582167493, 0.0013190194049922607, -3.218799121266175e-05, 1.6237093205642789e-06),
            *(-1.2743289742032805e-07, 1.3513032763134409e-08, -1.785075905119705e-09, 2.79085713479036e-10),
            *(-4.988908027652833e-11, 9.950713667806645e-12, -2.1751206043008833e-12, 5.140127162427605e-13),
            *(-1.2993242656059178e-13, 3.4837635776889786e-14, -9.84005757254373e-15, 2.9115274918592e-15),
            *(-8.982151171303344e-16, 2.877768906557925e-16, -9.542905011731343e-17, 3.2658161943648366e-17),
            *(-1.150518178532616e-17, 4.16320426537859e-18, -1.544369143900366e-18, 5.862959235519177e-19),
        ),
    ),
    1: (
        (
            *(1.00226762068534, 0.0022437352958079985, -2.3071018862548286e-05, 7.639181732533905e-07),
            *(-4.589685232343401e-08, 4.020515478419001e-09, -4.586773977170972e-10, 6.373158962859246e-11),
            *(-1.0327344567640412e-11, 1.8943274995111034e-12, -3.849703387824105e-13, 8.529914525779044e-14),
            *(-2.03544697865723e-14, 5.180421738900549e-15, -1.3953502148258493e-15, 3.9523601713314257e-16),
            *(-1.171117080126803e-16, 3.614078564738109e-17, -1.1572356053251518e-17, 3.832473906744907e-18),
        ),
        (
            *(0.37308734621468637, -0.0018705189681051477, 4.0056994520460306e-05, -1.914402839085632e-06),
            *(1.458816510742199e-07, -1.5183398644673165e-08, 1.979922260589517e-09, -3.065981449437696e-10),
            *(5.440233592059753e-11, -1.0786652192538468e-11, 2.346352831758894e-12, -5.522046856541826e-13),
            *(1.390972848139383e-13, -3.7181516752164614e-14, 1.0474063117829167e-14, -3.091784202917912e-15),
            *(9.518051831081499e-16, -3.0436450667050517e-16, 1.0075487579997493e-16, -3.4426306619813246e-17),
            *(1.2110503970221687e-17, -4.376388902428328e-18, 1.6214444005747313e-18),
        ),
    ),
}
# Zeros of J0 and J1 as sums of two parts, the first of which is exact in float32.
_ZEROS = ((2.404825448989868, 1.0870590460455913e-07), (5.520078182220459, -7.19341483347784e-08))
_ZERO_1 = (3.8317060470581055, -7.685059315313556e-08)


def _distance(x: Tensor, zero: tuple[float, float]) -> Tensor:
    """x² - zero², without loss of digits if the difference is small."""
    return ((x - zero[0]) - zero[1]) * (x + (zero[0] + zero[1]))


def j0_near(x: Tensor) -> Tensor:
    """J0(x) for x from 0 to 5."""
    product = _distance(x, _ZEROS[0]) * _distance(x, _ZEROS[1])
    return product * chebyshev(x * x * (2 / BORDER**2) - 1, _NEAR_0)


def j1_near(x: Tensor) -> Tensor:
    """J1(x) for x from 0 to 5."""
    return x * _distance(x, _ZERO_1) * chebyshev(x * x * (2 / BORDER**2) - 1, _NEAR_1)


def far(x: Tensor, order: int) -> tuple[Tensor, Tensor]:
    """J and Y of the given order for x from 5 on (DLMF 10.17.3 and 10.17.4)."""
    t = 2 * (BORDER / x) ** 2 - 1
    amplitude, quadrature = (chebyshev(t, table) for table in _AMPLITUDES[order])
    quadrature = quadrature / x
    # The phase is x - pi/4 or x - 3 pi/4; addition theorems avoid a loss of digits for large x.
    sine, cosine = torch.sin(x) * math.sqrt(0.5), torch.cos(x) * math.sqrt(0.5)
    shifted_cosine, shifted_sine = (cosine + sine, sine - cosine) if order == 0 else (sine - cosine, -sine - cosine)
    scale = math.sqrt(2 / math.pi) / torch.sqrt(x)
    first = scale * (amplitude * shifted_cosine - quadrature * shifted_sine)
    second = scale * (amplitude * shifted_sine + quadrature * shifted_cosine)
    return first, second
