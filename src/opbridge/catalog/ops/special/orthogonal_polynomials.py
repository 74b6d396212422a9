"""The orthogonal polynomials of ``torch.special``: one table row per family."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import body_for, decomposition, kernel_translation, translation
from opbridge.catalog.formulas.orthogonal import Family, as_tensor, evaluate, evaluate_with_kernel, unrolled
from opbridge.kernels.declared import kernel_for

kernel_for("opbridge::OrthogonalPolynomial", "orthogonal_polynomials.h")

_CHEBYSHEV = {"t": (0, 1), "u": (0, 2), "v": (-1, 2), "w": (1, 2)}
"""The kinds of Chebyshev polynomials: the first polynomial's constant and slope."""

_FAMILIES = {
    **{
        f"chebyshev_polynomial_{kind}": (f"Chebyshev polynomial {kind.upper()}", Family(first=first, slope=2, weight=1))
        for kind, first in _CHEBYSHEV.items()
    },
    **{
        f"shifted_chebyshev_polynomial_{kind}": (
            f"Chebyshev polynomial {kind.upper()}, shifted to [0, 1],",
            Family(first=first, slope=2, weight=1, is_shifted=True),
        )
        for kind, first in _CHEBYSHEV.items()
    },
    "hermite_polynomial_h": (
        "physicist's Hermite polynomial H",
        Family(first=(0, 2), slope=2, weight_rise=2, limits=(128, 512)),
    ),
    "hermite_polynomial_he": (
        "probabilist's Hermite polynomial He",
        Family(first=(0, 1), slope=1, weight_rise=1, limits=(128, 512)),
    ),
    "laguerre_polynomial_l": (
        "Laguerre polynomial L",
        Family(first=(1, -1), constant=1, constant_rise=2, slope=-1, weight_rise=1, divisor_rise=1),
    ),
    "legendre_polynomial_p": (
        "Legendre polynomial P",
        Family(first=(0, 1), slope=1, slope_rise=2, weight_rise=1, divisor_rise=1),
    ),
}


def _operators(name: str, title: str, family: Family) -> Iterator[Callable[..., Any]]:
    """The declarations of a family's three overloads, and that of the first one with a kernel."""
    operator = f"special_{name}"

    @translation(f"aten::{operator}")
    def of_tensors(x: Any, n: Any) -> Any:
        return evaluate(family, x, n)

    @kernel_translation(f"aten::{operator}")
    def with_kernel(x: Any, n: Any) -> Any:
        return evaluate_with_kernel(name, family, x, n)

    @decomposition(f"aten::{operator}.x_scalar")
    def of_number(x: float, n: Tensor) -> Tensor:
        return getattr(torch.ops.aten, operator)(as_tensor(x, n), n)

    @decomposition(f"aten::{operator}.n_scalar")
    def of_degree(x: Tensor, n: float) -> Tensor:
        result = unrolled(family, x, n)
        return getattr(torch.ops.aten, operator)(x, as_tensor(n, x)) if result is None else result

    overloads = (
        (of_tensors, "", "Tensor x, Tensor n", "of degree n at x (DLMF 18.9), broadcast; 0 for a degree below 0"),
        (of_number, ".x_scalar", "Scalar x, Tensor n", "of every degree in n, at one number"),
        (of_degree, ".n_scalar", "Tensor x, Scalar n", "of one degree, at every element of x"),
    )
    for function, overload, parameters, what in overloads:
        function.__name__ = function.__qualname__ = f"{operator}{overload.replace('.', '_')}"
        function.__doc__ = f"The {title} {what}.\n\n{operator}{overload}({parameters}) -> Tensor\n"
        yield function
    with_kernel.__name__ = with_kernel.__qualname__ = f"{operator}_with_kernel"
    with_kernel.__doc__ = f"The {title} as a node with a kernel.\n\n{operator}(Tensor x, Tensor n) -> Tensor\n"
    yield with_kernel


@body_for("opbridge::OrthogonalPolynomial")
def body(x: Tensor, n: Tensor, family: str, rule: list[float], limit: int) -> Tensor:
    """The nodes of the mapping without a kernel."""
    result: Tensor = getattr(torch.special, family)(x, n)
    return result


globals().update(
    (function.__name__, function)
    for name, (title, family) in _FAMILIES.items()
    for function in _operators(name, title, family)
)
