"""The inverse of the error function."""

from __future__ import annotations

from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.inverse_error import inverse_error
from opbridge.catalog.formulas.series import in_working_precision


@decomposition("aten::erfinv")
@in_working_precision
def erfinv(self: Tensor) -> Tensor:
    """The inverse error function; infinite at -1 and 1, NaN outside.

    erfinv(Tensor self) -> Tensor
    """
    return inverse_error(self)
