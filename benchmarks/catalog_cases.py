"""What ``catalog.py`` times each operator on: a call of the torch function, for about so many elements.

A case stands under the targets of the catalog that it measures, with spaces between. What PyTorch gives as a view, for
nothing, is read once on both sides.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["NOT_TIMED", "Case", "cases"]

Make = Callable[[int], tuple[Any, ...]]


@dataclasses.dataclass(frozen=True)
class Case:
    """One call.

    Attributes:
        targets: Of the catalog; the call takes all of them.
        function: The torch function.
        make: Its arguments, for a number of elements (of linear algebra: for a side of a matrix).
    """

    targets: tuple[str, ...]
    function: Callable[..., Any]
    make: Make


_BOOLEAN = "takes part where a tensor is boolean only"
_DYNAMIC = "takes part where a size is dynamic only"
_EMPTY = "takes part where a tensor is empty only"
_RANK_0 = "takes part at rank 0 only"

NOT_TIMED: Mapping[str, str] = {
    "aten::_pad_circular": "takes part on engines without the mode wrap only",
    "aten::_grouped_mm": "is for bfloat16 only in PyTorch on the CPU",
    "aten::bmm": _EMPTY,
    "aten::cholesky": "is what older versions of PyTorch call aten::linalg_cholesky_ex",
    "aten::constant_pad_nd": "takes part where nothing is padded only",
    "aten::conv3d": _DYNAMIC,
    "aten::floor_divide": "takes part on engines without float64 only",
    "aten::gather": _EMPTY,
    "aten::index.Tensor": "takes part where an index is int32 only",
    "aten::linear": _EMPTY,
    "aten::matmul": _EMPTY,
    "aten::mul.Tensor": _BOOLEAN,
    "aten::native_group_norm": _EMPTY,
    "aten::pow.Tensor_Scalar": _BOOLEAN,
    "aten::repeat_interleave.self_int": "takes part where the number is dynamic only",
    "aten::scatter_add": _RANK_0,
    "aten::split.Tensor": _DYNAMIC,
    "prims::remainder": "takes part on engines without float64 only",
    "prims::remainder.default": "is what aten::remainder consists of",
    "aten::sym_numel": _DYNAMIC,
    "aten::sym_stride.int": _DYNAMIC,
    "aten::topk": _RANK_0,
    "opbridge::Fmod": "has torch's node as its body",
    "opbridge::LuFactorPairs": "is for complex matrices; the cases are real",
    "opbridge::francis_sweep": "is a step of opbridge::Eig",
    "opbridge::lu_factor_pairs": "is for complex matrices; the cases are real",
}
"""Targets without a case, each with the reason."""


def cases() -> list[Case]:
    """All of them."""
    from catalog_cases_linalg import LINALG
    from catalog_cases_nn import NN, VISION

    tables = (ELEMENTWISE, INDEXING, REDUCTION, SPECIAL, _polynomials(), VIEWS, RANDOM, NN, VISION, LINALG)
    return [Case(tuple(key.split()), *value) for table in tables for key, value in table.items()]


def side(n: int) -> int:
    """Of a square of ``n`` elements."""
    return math.isqrt(n)


def square(n: int) -> Tensor:
    """Normally distributed numbers."""
    return torch.randn(side(n), side(n))


def one(n: int) -> tuple[Any, ...]:
    """A square."""
    return (square(n),)


def two(n: int) -> tuple[Any, ...]:
    """Two squares."""
    return square(n), square(n)


def _between(low: float, high: float) -> Make:
    return lambda n: (low + (high - low) * torch.rand(side(n), side(n)),)


def _integers(n: int, high: int) -> Tensor:
    return torch.randint(0, high, (side(n), side(n)))


def _places(n: int) -> Tensor:
    return torch.randint(0, side(n) ** 2, (n,))


def _same(n: int) -> tuple[Any, ...]:
    x = square(n)
    return x, x.clone()


def _shifts(n: int) -> tuple[Any, ...]:
    return _integers(n, 10000), _integers(n, 10)


def _shifts_of_bytes(n: int) -> tuple[Any, ...]:
    return tuple(_integers(n, high).to(torch.uint8) for high in (256, 8))


Table = dict[str, tuple[Callable[..., Any], Make]]

ELEMENTWISE: Table = {
    "aten::acos opbridge::Acos": (torch.acos, _between(-1, 1)),
    "aten::acosh opbridge::Acosh": (torch.acosh, _between(1, 100)),
    "aten::addcdiv": (torch.addcdiv, lambda n: (square(n), square(n), 1 + square(n).abs())),
    "aten::addcmul": (torch.addcmul, lambda n: (square(n), *two(n))),
    "aten::angle": (torch.angle, one),
    "aten::arange.start": (lambda x: x + torch.arange(0, x.shape[0], dtype=x.dtype), lambda n: (torch.randn(n),)),
    "aten::arange.start_step": (
        lambda x: x + torch.arange(0, 2 * x.shape[0], 2, dtype=x.dtype),
        lambda n: (torch.randn(n),),
    ),
    "aten::asin opbridge::Asin": (torch.asin, _between(-1, 1)),
    "aten::asinh opbridge::Asinh": (torch.asinh, one),
    "aten::atan opbridge::Atan": (torch.atan, one),
    "aten::atan2": (torch.atan2, two),
    "aten::atanh opbridge::Atanh": (torch.atanh, _between(-1, 1)),
    "aten::bitwise_left_shift": (torch.bitwise_left_shift, _shifts_of_bytes),
    "aten::bitwise_right_shift": (torch.bitwise_right_shift, _shifts_of_bytes),
    "aten::__lshift__": (torch.ops.aten.__lshift__.Tensor, _shifts),
    "aten::__rshift__": (torch.ops.aten.__rshift__.Tensor, _shifts),
    "aten::ceil": (torch.ceil, lambda n: (_integers(n, 100),)),
    "aten::floor": (torch.floor, lambda n: (_integers(n, 100),)),
    "aten::trunc": (torch.trunc, lambda n: (_integers(n, 100),)),
    "aten::round.default": (torch.round, lambda n: (_integers(n, 100),)),
    "aten::copysign.Scalar": (lambda x: torch.copysign(x, -1.0), one),
    "aten::copysign.Tensor": (torch.copysign, two),
    "aten::cosh opbridge::Cosh": (torch.cosh, one),
    "aten::div.Tensor_mode": (
        lambda x, y: torch.div(x, y, rounding_mode="floor"),
        lambda n: (_integers(n, 10000), 1 + _integers(n, 100)),
    ),
    "aten::erf opbridge::Erf": (torch.erf, one),
    "aten::floor_divide.default": (torch.floor_divide, two),
    "aten::heaviside": (torch.heaviside, two),
    "aten::isclose": (torch.isclose, two),
    "aten::logaddexp": (torch.logaddexp, two),
    "aten::logaddexp2": (torch.logaddexp2, two),
    "aten::remainder opbridge::Remainder": (torch.remainder, two),
    "aten::sgn": (torch.sgn, one),
    "aten::sign": (torch.sign, one),
    "aten::xlogy": (torch.xlogy, lambda n: (square(n), square(n).abs())),
    "aten::expm1": (torch.expm1, one),
    "aten::fill.Scalar": (lambda x: torch.fill(x, 2.0), one),
    "aten::fmax": (torch.fmax, two),
    "aten::fmin": (torch.fmin, two),
    "aten::frexp.Tensor opbridge::Frexp": (torch.frexp, one),
    "aten::full": (lambda x: x + torch.full(x.shape, 2.0, dtype=x.dtype), one),
    "aten::gcd opbridge::Gcd": (torch.gcd, lambda n: (_integers(n, 10000), _integers(n, 10000))),
    "aten::hypot": (torch.hypot, two),
    "aten::isinf": (torch.isinf, one),
    "aten::isneginf": (torch.isneginf, one),
    "aten::isposinf": (torch.isposinf, one),
    "aten::lcm opbridge::Lcm": (torch.lcm, lambda n: (_integers(n, 10000), _integers(n, 10000))),
    "aten::leaky_relu": (F.leaky_relu, one),
    "aten::log10 opbridge::Log10": (torch.log10, _between(0.1, 100)),
    "aten::log1p": (torch.log1p, _between(0, 100)),
    "aten::log2 opbridge::Log2": (torch.log2, _between(0.1, 100)),
    "aten::logit": (lambda x: torch.logit(x, 0.6), _between(0.01, 0.99)),
    "aten::nextafter": (torch.nextafter, two),
    "aten::pow.Tensor_Tensor": (torch.pow, lambda n: (_integers(n, 10), square(n))),
    "aten::scalar_tensor": (lambda x: x + torch.scalar_tensor(2.0, dtype=x.dtype), one),
    "aten::signbit": (torch.signbit, one),
    "aten::sinc": (torch.sinc, one),
    "aten::sinh opbridge::Sinh": (torch.sinh, one),
    "aten::tan opbridge::Tan": (torch.tan, one),
    "torch.allclose": (torch.allclose, _same),
    "torch.equal": (torch.equal, _same),
}


def _puts(n: int) -> tuple[Any, ...]:
    return square(n), _places(n), torch.randn(n)


INDEXING: Table = {
    "aten::bincount opbridge::BinCount": (
        lambda x: torch.bincount(x, minlength=1000),
        lambda n: (torch.randint(0, 1000, (n,)),),
    ),
    "opbridge::WeightedBinCount": (
        lambda x, weights: torch.bincount(x, weights, minlength=1000),
        lambda n: (torch.randint(0, 1000, (n,)), torch.randn(n)),
    ),
    "aten::bucketize": (torch.bucketize, lambda n: (square(n), torch.linspace(-3, 3, 1000))),
    "aten::cummax opbridge::CumMax": (lambda x: torch.cummax(x, -1), one),
    "aten::cummin opbridge::CumMin": (lambda x: torch.cummin(x, -1), one),
    "aten::_unsafe_index_put": (
        lambda x, i, v: torch.ops.aten._unsafe_index_put(x, [i], v),
        lambda n: (square(n), torch.randperm(side(n), dtype=torch.int32), square(n)),
    ),
    "aten::index_put": (
        lambda x, i, v: torch.index_put(x, [i], v),
        lambda n: (square(n), torch.randperm(side(n), dtype=torch.int32), square(n)),
    ),
    "aten::index_reduce": (
        lambda x, i, v: torch.index_reduce(x, 0, i, v, "amax"),
        lambda n: (square(n), torch.randint(0, side(n), (side(n),)), square(n)),
    ),
    "aten::kthvalue": (lambda x: torch.kthvalue(x, 10), one),
    "aten::masked_select torch.masked_select": (torch.masked_select, lambda n: (square(n), square(n) > 0)),
    "aten::nonzero": (torch.nonzero, lambda n: (_integers(n, 2),)),
    "aten::nonzero_static": (lambda x: torch.nonzero_static(x, size=1000), lambda n: (_integers(n, 2),)),
    "aten::put": (torch.put, _puts),
    "aten::scatter.reduce": (
        lambda x, i, v: torch.scatter(x, 1, i, v, reduce="add"),
        lambda n: (square(n), _integers(n, side(n)), square(n)),
    ),
    "aten::scatter.value_reduce": (
        lambda x, i: torch.scatter(x, 1, i, 2.0, reduce="add"),
        lambda n: (square(n), _integers(n, side(n))),
    ),
    "aten::scatter.src": (
        lambda x, i, v: torch.scatter(x, 1, i, v),
        lambda n: (square(n), torch.argsort(square(n)), square(n)),
    ),
    "aten::scatter.value": (lambda x, i: torch.scatter(x, 1, i, 2.0), lambda n: (square(n), _integers(n, side(n)))),
    "aten::scatter_reduce.two": (
        lambda x, i, v: torch.scatter_reduce(x, 1, i, v, "mean"),
        lambda n: (square(n), _integers(n, side(n)), square(n)),
    ),
    "aten::searchsorted.Tensor opbridge::SearchSorted": (
        torch.searchsorted,
        lambda n: (torch.sort(torch.randn(side(n), 1000)).values, square(n)),
    ),
    "aten::searchsorted.Scalar": (
        lambda x: torch.searchsorted(x, 0.5),
        lambda n: (torch.sort(torch.randn(n)).values,),
    ),
    "aten::sort": (lambda x: torch.sort(x, stable=True), one),
    "aten::squeeze.dim": (lambda x: torch.squeeze(x, 0) + 1, lambda n: (square(n)[None],)),
    "aten::squeeze.dims": (lambda x: torch.squeeze(x, (0, 1)) + 1, lambda n: (square(n)[None, None],)),
    "aten::take": (torch.take, lambda n: (square(n), _places(n))),
    "aten::unique_consecutive opbridge::UniqueConsecutive": (
        torch.unique_consecutive,
        lambda n: (torch.randint(0, 1000, (n,)).sort().values,),
    ),
    "aten::repeat_interleave.Tensor": (
        lambda x, repeats: torch.repeat_interleave(x, repeats, 0),
        lambda n: (square(n // 2), torch.randint(0, 4, (side(n // 2),))),
    ),
    "torch.tensor_split": (
        lambda x, places: [part + 1 for part in torch.tensor_split(x, places)],
        lambda n: (square(n), torch.tensor([100, 500])),
    ),
    "torch.Tensor.tensor_split": (
        lambda x, places: [part + 1 for part in x.tensor_split(places)],
        lambda n: (square(n), torch.tensor([100, 500])),
    ),
    "torch.narrow": (
        lambda x, start: torch.narrow(x, 0, start, x.shape[0] - 1) + 1,
        lambda n: (square(n), torch.tensor(1)),
    ),
}

REDUCTION: Table = {
    "aten::amax": (lambda x: torch.amax(x, -1), one),
    "aten::amin": (lambda x: torch.amin(x, -1), one),
    "aten::argmax": (lambda x: torch.argmax(x, -1), one),
    "aten::argmin": (lambda x: torch.argmin(x, -1), one),
    "aten::max.dim": (lambda x: torch.max(x, -1), one),
    "aten::min.dim": (lambda x: torch.min(x, -1), one),
    "aten::aminmax": (lambda x: torch.aminmax(x, dim=-1), one),
    "aten::cumprod opbridge::CumProd": (lambda x: torch.cumprod(x, -1), _between(0.9, 1.1)),
    "aten::max.default": (torch.max, one),
    "aten::min.default": (torch.min, one),
    "aten::logsumexp": (lambda x: torch.logsumexp(x, -1), one),
    "aten::logcumsumexp opbridge::LogCumSumExp": (lambda x: torch.logcumsumexp(x, -1), one),
    "aten::hash_tensor opbridge::HashTensor": (torch.hash_tensor, one),
    "aten::histc opbridge::HistC": (lambda x: torch.histc(x, 100, -3, 3), lambda n: (torch.randn(n),)),
    "aten::histogram.bin_ct": (lambda x: torch.histogram(x, 100, range=(-3.0, 3.0)), lambda n: (torch.randn(n),)),
    "aten::histogram.bins_tensor opbridge::Histogram": (
        torch.histogram,
        lambda n: (torch.randn(n), torch.linspace(-3, 3, 101)),
    ),
    "aten::_histogramdd_bin_edges aten::_histogramdd_from_bin_cts": (
        lambda x: torch.histogramdd(x, [10, 10], range=(-3.0, 3.0, -3.0, 3.0)),
        lambda n: (torch.randn(n // 2, 2),),
    ),
    "aten::_histogramdd_from_bin_tensors": (
        lambda x, a, b: torch.histogramdd(x, (a, b)).hist,
        lambda n: (torch.randn(n // 2, 2), torch.linspace(-3, 3, 11), torch.linspace(-3, 3, 11)),
    ),
    "aten::median.default": (torch.median, one),
    "aten::median.dim opbridge::Median": (lambda x: torch.median(x, -1), one),
    "aten::nanmedian.default": (torch.nanmedian, one),
    "aten::nanmedian.dim": (lambda x: torch.nanmedian(x, -1), one),
    "aten::mode opbridge::Mode": (torch.mode, lambda n: (_integers(n, 100),)),
    "aten::prod.dim_int": (lambda x: torch.prod(x, -1), _between(0.9, 1.1)),
    "aten::segment_reduce": (
        lambda x, lengths: torch.segment_reduce(x, "mean", lengths=lengths, unsafe=True),
        lambda n: (square(n), torch.full((side(n) // 8,), 8)),
    ),
    "aten::std.correction": (lambda x: torch.std(x, -1), one),
    "aten::std_mean.correction": (lambda x: torch.std_mean(x, -1), one),
    "aten::var.correction": (lambda x: torch.var(x, -1), one),
    "aten::var_mean.correction": (lambda x: torch.var_mean(x, -1), one),
}

_WIDE = _between(-10, 10)
_POSITIVE = _between(0.1, 10)


def _pairs(n: int) -> tuple[Any, ...]:
    return *_POSITIVE(n), *_POSITIVE(n)


_EVERYWHERE = (
    *("airy_ai", "bessel_j0", "bessel_j1", "erfcx", "i0e", "i1", "i1e", "log_ndtr"),
    *("modified_bessel_i0", "modified_bessel_i1", "spherical_bessel_j0"),
)
_ABOVE_0 = (
    *("bessel_y0", "bessel_y1", "modified_bessel_k0", "modified_bessel_k1"),
    *("scaled_modified_bessel_k0", "scaled_modified_bessel_k1"),
)

SPECIAL: Table = {
    "aten::digamma": (torch.digamma, _WIDE),
    "aten::erfc opbridge::Erfc": (torch.erfc, _between(-3, 3)),
    "aten::erfinv": (torch.erfinv, _between(-1, 1)),
    "aten::i0": (torch.i0, _WIDE),
    "aten::igamma": (torch.igamma, _pairs),
    "aten::igammac": (torch.igammac, _pairs),
    "aten::lgamma": (torch.lgamma, _WIDE),
    "aten::mvlgamma": (lambda x: torch.mvlgamma(x, 3), _between(2, 10)),
    "aten::polygamma": (lambda x: torch.polygamma(2, x), _POSITIVE),
    "aten::special_zeta": (torch.special.zeta, lambda n: (1.5 + _POSITIVE(n)[0], *_POSITIVE(n))),
    "aten::special_zeta.other_scalar": (lambda x: torch.special.zeta(x, 2.0), _between(1.5, 10)),
    "aten::special_zeta.self_scalar": (lambda x: torch.special.zeta(2.0, x), _POSITIVE),
    "aten::special_ndtri": (torch.special.ndtri, _between(0.01, 0.99)),
    **{f"aten::special_{name}": (getattr(torch.special, name), _WIDE) for name in _EVERYWHERE},
    **{f"aten::special_{name}": (getattr(torch.special, name), _POSITIVE) for name in _ABOVE_0},
}


def _polynomials() -> Table:
    names = [f"{prefix}chebyshev_polynomial_{kind}" for prefix in ("", "shifted_") for kind in "tuvw"]
    names += ["hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"]
    table: Table = {}
    for name in names:
        table |= _polynomial(f"aten::special_{name}", getattr(torch.special, name))
    return table


def _polynomial(target: str, function: Callable[..., Any]) -> Table:
    unit = _between(0, 1)
    return {
        f"{target} opbridge::OrthogonalPolynomial": (function, lambda n: (*unit(n), _integers(n, 10))),
        f"{target}.n_scalar": (lambda x: function(x, 7), unit),
        f"{target}.x_scalar": (lambda degree: function(0.3, degree), lambda n: (_integers(n, 10),)),
    }


VIEWS: Table = {
    # Contiguous, because a view that nobody copies costs eager PyTorch nothing.
    "aten::as_strided": (lambda x: x.T.as_strided(x.shape, (1, x.shape[1])).contiguous() + 1, one),
    "aten::as_strided_scatter": (
        lambda x, y: torch.as_strided_scatter(x, y, y.shape, (x.shape[1], 1)),
        lambda n: (square(n), square(n // 4)),
    ),
    "aten::copy": (torch.ops.aten.copy, lambda n: (square(n), torch.randn(1, side(n)))),
    "aten::diagonal": (lambda x: torch.diagonal(x).clone(), one),
    "aten::diagonal_copy": (torch.diagonal_copy, one),
    "aten::diagonal_scatter": (torch.diagonal_scatter, lambda n: (square(n), torch.randn(side(n)))),
    "aten::empty_permuted": (lambda x: x + 0 * torch.empty_permuted(x.shape, (1, 0)).isnan(), one),
    "aten::view.dtype opbridge::bit_cast opbridge::BitCast": (lambda x: x.view(torch.int32) + 1, one),
    "aten::resize": (lambda x: torch.ops.aten.resize(x, [x.numel() // 2]) + 1, one),
}

RANDOM: Table = {
    "aten::bernoulli": (torch.bernoulli, _between(0, 1)),
    "aten::geometric": (lambda x: torch.ops.aten.geometric(x, 0.3), one),
    "aten::_sample_dirichlet": (torch._sample_dirichlet, _between(0.1, 10)),
    "aten::_standard_gamma opbridge::gamma_sample opbridge::StandardGamma": (torch._standard_gamma, _between(0.1, 10)),
    "aten::randperm opbridge::order_of_uniform opbridge::OrderOfUniform": (
        lambda x: x + torch.randperm(x.shape[0]),
        lambda n: (torch.randn(n),),
    ),
    "aten::multinomial": (lambda x: torch.multinomial(x, 16, replacement=True), _between(0, 1)),
    # As in models, where ONNX Runtime removes the Dropout node that torch.onnx writes.
    "aten::native_dropout": (lambda x: torch.native_dropout(x.relu(), 0.5, True)[0] + 1, one),
    "aten::rrelu_with_noise_functional": (lambda x: F.rrelu(x, training=True), one),
    "aten::uniform": (torch.ops.aten.uniform, one),
}
