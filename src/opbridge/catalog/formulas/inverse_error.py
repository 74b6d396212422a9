"""The inverse error function, from the element and the logarithm of its tail."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opbridge.catalog.formulas.series import chebyshev

__all__ = ["inverse_error"]

# Chebyshev coefficients, computed with 40 digits, of erfinv(y) / y, where w = -log(1 - y²): for w = 2.5 (1 + t) ...
_CENTRE = (
    *(1.4912989404744903, 0.60175630341083, -0.009170559500080926, -0.004962635326766425),
    *(0.0009153796700079642, -3.889562757083e-06, -2.4202599404944085e-05, 3.2665715925842334e-06),
    *(2.7758889803736634e-07, -1.3023363013643025e-07, 8.10464342479187e-09, 2.862438517693075e-09),
    *(-5.975090007034137e-10, -1.222297879869563e-11, 1.959596397135697e-11, -2.0510407207370845e-12),
    *(-3.4468604612228004e-13, 1.0546751676969238e-13, -2.4493755490805207e-15, -2.948685683278964e-15),
    *(4.4073860711035857e-16, 3.679429175171005e-17, -1.8246984583383886e-17),
)
# ... for sqrt(w) from sqrt(5) to 6.25 (the limit of y in float64) ...
_TAIL = (
    *(4.089205266713266, 2.0200466148006586, 0.0051750091426364985, -0.0031052455381942704),
    *(0.001383010579267697, -0.0006029095299724827, 0.0002560018553801367, -9.825350904415559e-05),
    *(3.054441269233689e-05, -5.822381602985965e-06, -7.121960248254664e-07, 1.231486517387234e-06),
    *(-6.014382125148513e-07, 1.6376866575200778e-07, -7.754774949771873e-09, -1.6957956895406937e-08),
    *(9.424681213435904e-09, -2.5397294311643142e-09, 1.0797792488637118e-10, 2.353305958769708e-10),
    *(-1.1889552486657705e-10, 2.8703956515960474e-11, -7.262650474492999e-13, -2.4832367365417165e-12),
    *(1.167306329097602e-12, -2.916045829520644e-13, 2.566679750498674e-14, 1.526029437842416e-14),
    *(-1.0097376259973325e-14, 3.62049196865881e-15, -7.909207229240881e-16, -4.603006280944013e-18),
    *(9.909002348236825e-17, -5.154592217350871e-17, 1.4531759382933786e-17),
)
# ... and from there to 27.5 (the limit of p = (1 + y) / 2 in float64).
_FAR = (
    *(16.786355857065438, 10.662694268368488, -0.00882579689507478, 0.0020495846480213884),
    *(-0.0004393213334291609, 7.452083206805321e-05, -2.601410436264957e-06, -6.225453343634756e-06),
    *(4.384116553956429e-06, -2.2233647382034166e-06, 9.948287078968864e-07, -4.165452426931878e-07),
    *(1.6736833185905505e-07, -6.53768604470447e-08, 2.501430563488147e-08, -9.419361207721257e-09),
    *(3.501772532493561e-09, -1.2880518517932977e-09, 4.694979599823741e-10, -1.6977898436300929e-10),
    *(6.096104579684927e-11, -2.1747837868553144e-11, 7.712295500995945e-12, -2.7196391924215177e-12),
    *(9.539231410173212e-13, -3.3286646561839033e-13, 1.1556655266827201e-13, -3.9923147361704523e-14),
    *(1.372300444819315e-14, -4.693364491197718e-15, 1.59693476407839e-15, -5.4049872871439135e-16),
    *(1.8193944394791187e-16, -6.089721727681186e-17),
)


def inverse_error(y: Tensor, log_tail: Tensor | None = None) -> Tensor:
    """The inverse error function of y.

    The variable w is from M. Giles ("Approximating the erfinv function", 2012), the coefficients are not.

    Args:
        y: Any number; the result is infinite at -1 and 1, and NaN beyond.
        log_tail: The value of log(1 - y²), if it is known more accurately than y.
    """
    w = -(torch.log((1 - y) * (1 + y)) if log_tail is None else log_tail)
    root = torch.sqrt(w.clamp_min(0))
    centre = chebyshev((w / 2.5 - 1).clamp(-1, 1), _CENTRE)
    tail = chebyshev(_scaled(root, math.sqrt(5), 6.25), _TAIL)
    if log_tail is not None or y.dtype == torch.float64:  # No root of a float32 y is above 4.
        tail = torch.where(root <= 6.25, tail, chebyshev(_scaled(root, 6.25, 27.5), _FAR))
    factor = torch.where(w <= 5, centre, tail)
    return torch.where(w == math.inf, y * math.inf, torch.where(w.isnan(), w, y * factor))


def _scaled(value: Tensor, low: float, high: float) -> Tensor:
    """Map [low, high] to [-1, 1]."""
    return ((value - low) * (2 / (high - low)) - 1).clamp(-1, 1)
