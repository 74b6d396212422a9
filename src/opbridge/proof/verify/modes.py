"""The additional checks of a verification, beyond fresh inputs at a few sizes. This module does not import torch."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from opbridge.errors import InputError

__all__ = ["MODES", "REPORT", "REQUIRE", "Arrays", "Given", "Modes", "named_cases"]

REPORT, REQUIRE = "report", "require"

Arrays = Mapping[str, np.ndarray]
Given = Sequence[Arrays] | Mapping[str, Arrays]
"""The user's inputs: one mapping of names to arrays per case; the cases may have names."""


@dataclasses.dataclass(frozen=True)
class Modes:
    """The additional checks.

    Attributes:
        edge_sizes: Whether every dynamic dimension is tried at 0, at 1, at an odd size and at an even size.
        special_values: "report" to compare special values too, "require" if they must give the same results as in
            PyTorch; empty for neither.
        shrink: The time limit of the search for a small failing input, in seconds; 0 for no search.
    """

    edge_sizes: bool = False
    special_values: str = ""
    shrink: float = 0.0

    @classmethod
    def of(cls, edge_sizes: bool = False, special_values: bool | str = False, shrink: float | None = None) -> Modes:
        """The modes as :func:`opbridge.verify` takes them.

        Raises:
            InputError: ``special_values`` or ``shrink`` can't be used, or Hypothesis is not installed.
        """
        special = REPORT if special_values is True else special_values or ""
        if special not in ("", REPORT, REQUIRE):
            raise InputError(
                f"special_values={special_values!r} is not valid: it can be True, {REPORT!r} or {REQUIRE!r}.",
                fix=f"pass special_values={REPORT!r}.",
            )
        seconds = 0.0 if shrink is None else float(shrink)
        if not (math.isfinite(seconds) and seconds >= 0):
            raise InputError(
                f"shrink={shrink} is not valid: it is a number of seconds, at least 0.",
                fix="pass, for example, shrink=30.",
            )
        if seconds:
            _check_hypothesis()
        return cls(edge_sizes, special, seconds)


MODES = Modes()
"""No additional checks."""


def named_cases(inputs: Given) -> list[tuple[str, Arrays]]:
    """The user's inputs with the names of the cases: the user's, or "given 1", "given 2", ..."""
    if isinstance(inputs, Mapping):
        cases: dict[str, Any] = dict(inputs)
        if any(not isinstance(arrays, Mapping) for arrays in cases.values()):
            raise InputError(
                "inputs is one mapping of names to arrays; it must be a list of them, one per case.",
                fix="pass inputs=[{...}].",
            )
        return list(cases.items())
    return [(f"given {number}", arrays) for number, arrays in enumerate(inputs, 1)]


def _check_hypothesis() -> None:
    import importlib.util

    if importlib.util.find_spec("hypothesis") is None:
        raise InputError(
            "The search for a small failing input needs Hypothesis, which is not installed.",
            fix="pip install hypothesis",
        )
