"""What a mapping does with NaN: it either returns what PyTorch returns, or assumes that no number is NaN.

By default an exported model equals PyTorch on every input for which no value of the eager run is NaN. A mapping that
needs extra nodes only for NaN asks :func:`keeps_nan` whether this call needs them. The plan sets the answer for each
call: true if the user requests ``nan="exact"``, if the verification meets NaN and the user requests nothing else, or if
an operator that detects NaN may see the result.
"""

from __future__ import annotations

from typing import Literal, get_args

from opbridge.errors import InputError
from opbridge.onnx_model.nan import keeping_nan, keeps_nan

__all__ = ["ABSENT", "AUTO", "EXACT", "Nan", "checked_nan", "keeping_nan", "keeps_nan"]

Nan = Literal["absent", "exact"]
"""The contract of a model: no value of the eager run is NaN, or NaN gives the same results as in PyTorch."""

ABSENT: Nan = "absent"
EXACT: Nan = "exact"
AUTO = "auto"
"""An export's choice of the contract: absent, unless the verification meets NaN."""


def checked_nan(nan: str) -> Nan:
    """The contract that a user requests.

    Raises:
        InputError: There is no such contract.
    """
    for known in get_args(Nan):
        if nan == known:
            return EXACT if nan == EXACT else ABSENT
    raise InputError(f"nan={nan!r} is not valid: it can be {ABSENT!r} or {EXACT!r}.", fix=f"pass nan={EXACT!r}.")
