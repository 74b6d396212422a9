"""Fitted parts of the logarithm of the gamma function."""

from __future__ import annotations

from torch import Tensor

from opbridge.catalog.formulas.series import chebyshev

__all__ = ["log_gamma_1p", "stirling_rest", "without_zeros"]

# Chebyshev coefficients, computed with 40 digits: of lgamma(z) / ((z - 1) (z - 2)), where z = 2 + t ...
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
# ... and of z times the remainder of Stirling's formula, where 1/z = (1 + t) / 6.
_FAR = (
    *(0.08322010841305535, -0.0001503131693901069, -3.6608757678318726e-05, 5.38244273114798e-07),
    *(5.565395514939725e-08, -3.2388806260360773e-09, -1.1447537631295206e-10, 2.500663611319103e-11),
    *(-7.158295731284409e-13, -1.7817116487112267e-13, 2.3538238326738805e-14, -4.719341157133132e-17),
    *(-3.433692246197218e-16, 4.3402227155236187e-17, 5.008962246422417e-19, -9.6702796995806e-19),
)


def without_zeros(t: Tensor) -> Tensor:
    """lgamma(2 + t) / (t (t + 1)), for t in [-1, 1]: the zeros at -1 and 0 are divided out."""
    return chebyshev(t, _NEAR)


def log_gamma_1p(a: Tensor) -> Tensor:
    """lgamma(1 + a) for a in [0, 2], to full precision near its zero at 0."""
    return (a - 1) * a * without_zeros(a - 1)


def stirling_rest(z: Tensor) -> Tensor:
    """The remainder of Stirling's formula for lgamma(z) (DLMF 5.11.1), for z from 3 on."""
    return chebyshev(6 / z - 1, _FAR) / z
