"""The regularized incomplete gamma functions P(a, x) and Q(a, x) = 1 - P(a, x)."""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import torch
from torch import Tensor

from opbridge.catalog.formulas.log_gamma import log_gamma_1p, stirling_rest
from opbridge.catalog.formulas.series import polynomial

__all__ = ["regularized", "temme_coefficients"]

_LARGE = 20.0
"""From this a on, Temme's expansion is used if x is near a."""

_NEAR = 0.5
"""x is near a if |x - a| is below this fraction of a."""

_STEPS = {torch.float32: (32, 24), torch.float64: (64, 90)}
"""The number of terms of the series and of the continued fraction; further terms do not change the result."""

_TERMS = {torch.float32: (4, 11), torch.float64: (12, 26)}
"""The numbers of powers of 1/a and of eta in Temme's expansion."""


def regularized(a: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """P(a, x) and Q(a, x), the smaller one to full precision.

    The results are NaN if a or x is negative, if both are 0, or if both are infinite. Otherwise P is 0 for x = 0 and
    for an infinite a, and 1 for a = 0 and for an infinite x.

    Args:
        a: A float32 or float64 tensor.
        x: A tensor of the same dtype.
    """
    a, x = torch.broadcast_tensors(a, x)
    is_none, is_all = ((x == 0) & (a != 0)) | (a == math.inf), ((a == 0) & (x > 0)) | (x == math.inf)
    is_plain = (a > 0) & (x > 0) & ~is_none & ~is_all
    tail, is_upper = _smaller_tail(torch.where(is_plain, a, 1.0), torch.where(is_plain, x, 1.0))
    rest = 1 - tail
    lower, upper = torch.where(is_upper, rest, tail), torch.where(is_upper, tail, rest)
    is_edge = (is_none ^ is_all) & ~(a < 0) & ~(x < 0)
    edge = torch.where(is_edge, is_all.to(tail.dtype), math.nan)
    return torch.where(is_plain, lower, edge), torch.where(is_plain, upper, 1 - edge)


def _smaller_tail(a: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """P if the second result is False, or Q if it is True, for positive and finite numbers.

    Temme's uniform expansion is used if x is near a large a (DLMF 8.12; Temme, "The asymptotic expansion of the
    incomplete gamma functions", 1979), otherwise the series of P (DLMF 8.11.4), the series of Q for a small x (DLMF
    8.7.3), or the continued fraction of Q (DLMF 8.9.2). All are computed for every element, and one is selected.
    """
    excess = (x - a) / a
    depth = _depth(x / a, excess)
    weight = _weight(a, x, depth)
    by_temme, is_above = _by_temme(a, excess, depth)
    by_series = weight * _series_of_p(a, x)
    by_fraction = weight * a * _fraction_of_q(a, x)
    is_central = (a >= _LARGE) & (excess.abs() < _NEAR)
    # For x up to 1.1, P is smaller than Q if a is above about -0.4 / log x.
    is_upper_of_small = torch.where(x <= 0.5, -0.4 / torch.log(x.clamp_max(0.5)) >= a, x * 1.1 >= a)
    is_upper = torch.where(x > 1.1, x > a, is_upper_of_small)
    outside = torch.where(is_upper, torch.where(x > 1.1, by_fraction, _small_q(a, x)), by_series)
    return torch.where(is_central, by_temme, outside), torch.where(is_central, is_above, is_upper)


def _depth(ratio: Tensor, excess: Tensor) -> Tensor:
    """The difference ratio - 1 - log(ratio), to full precision also near 1; ``excess`` is ratio - 1.

    The formula is log(1 + m) = 2 artanh(s) with s = m / (2 + m), whose linear term differs from m by m s.
    """
    is_near = excess.abs() < 0.6
    m = torch.where(is_near, excess, 0.0)
    s = m / (2 + m)
    squared = s * s
    count = 12 if ratio.dtype == torch.float32 else 24
    rest = polynomial(squared, [1 / (2 * k + 3) for k in range(count)])
    return torch.where(is_near, m * s - 2 * s * squared * rest, excess - torch.log(ratio))


def _weight(a: Tensor, x: Tensor, depth: Tensor) -> Tensor:
    """x**a exp(-x) / gamma(a + 1)."""
    low, bounded = a.clamp_max(3), x.clamp_max(1000)
    is_above_2 = low > 2
    gamma = torch.exp(log_gamma_1p(torch.where(is_above_2, low - 1, low))) * torch.where(is_above_2, low, 1.0)
    half = torch.exp(-0.5 * bounded)
    small = torch.pow(bounded, low) * half / gamma * half
    large = a.clamp_min(3)
    scaled = torch.exp(-large * depth - stirling_rest(large)) / torch.sqrt(2 * math.pi * large)
    return torch.where(a < 3, small, scaled)


def _series_of_p(a: Tensor, x: Tensor) -> Tensor:
    """1 + x / (a + 1) + x² / ((a + 1) (a + 2)) + ..., evaluated from the last term to the first."""
    total = torch.ones_like(x)
    for k in range(_STEPS[x.dtype][0], 0, -1):
        total = 1 + x / (a + k) * total
    return total


def _fraction_of_q(a: Tensor, x: Tensor) -> Tensor:
    """1 / (x + 1 - a - 1 (1 - a) / (x + 3 - a - 2 (2 - a) / (x + 5 - a - ...))), from the innermost fraction."""
    base = x - a
    count = _STEPS[x.dtype][1]
    total = base + (2 * count + 1)
    for k in range(count, 0, -1):
        total = base + (2 * k - 1) - k * (k - a) / total
    return 1 / total


def _small_q(a: Tensor, x: Tensor) -> Tensor:
    """1 - x**a / gamma(a + 1) (1 + a times the sum of (-x)**n / (n! (a + n)) over n = 1, 2, ...)."""
    bounded, low = x.clamp_max(1.1), a.clamp_max(2)
    log_power = low * torch.log(bounded) - log_gamma_1p(low)
    total = torch.zeros_like(x)
    for n in range(12 if x.dtype == torch.float32 else 22, 0, -1):
        total = -bounded / n * (1 / (low + n) + total)
    return -torch.expm1(log_power) - torch.exp(log_power) * low * total


def _by_temme(a: Tensor, excess: Tensor, depth: Tensor) -> tuple[Tensor, Tensor]:
    """The smaller of P and Q, and whether it is Q."""
    is_above = excess >= 0
    size = torch.sqrt(2 * depth)
    eta = torch.where(is_above, size, -size)
    powers, degree = _TERMS[a.dtype]
    inverse = 1 / a
    total = torch.zeros_like(a)
    for row in reversed(temme_coefficients(powers, degree)):
        total = total * inverse + polynomial(eta, row)
    share = total / torch.sqrt(2 * math.pi * a)
    tail = 0.5 * torch.special.erfcx(torch.sqrt(a * depth))
    return torch.exp(-a * depth) * torch.where(is_above, tail + share, tail - share), is_above


@functools.cache
def temme_coefficients(powers: int, degree: int) -> tuple[tuple[float, ...], ...]:
    """The Taylor coefficients at 0 of Temme's c_k(eta), for k = 0, 1, ..., powers - 1 (DLMF 8.12.9 to 8.12.12).

    c_0 = 1 / (x / a - 1) - 1 / eta. c_k is the derivative of c_(k-1) divided by eta, plus a multiple of c_0 that
    cancels the pole. The computation uses exact fractions.
    """
    ratio = _ratio_series(degree + 2 * powers + 1)
    first = [(n + 2) * ratio[n + 2] for n in range(len(ratio) - 2)]
    first[0] -= 1
    rows = [first]
    while len(rows) < powers:
        last = rows[-1]
        rows.append([(n + 2) * last[n + 2] - last[1] * first[n] for n in range(len(last) - 2)])
    return tuple(tuple(float(value) for value in row[:degree]) for row in rows)


def _ratio_series(length: int) -> list[Fraction]:
    """The coefficients of x / a in powers of eta: the inverse of eta² / 2 = x / a - 1 - log(x / a)."""
    found = [Fraction(1), Fraction(1)]
    for m in range(2, length + 1):
        products = sum((found[i] * found[m + 1 - i] for i in range(2, m)), Fraction(0))
        found.append(found[m - 1] / (m + 1) - products / 2)
    return found
