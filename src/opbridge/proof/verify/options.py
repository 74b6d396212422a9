"""The options of one verification, except for the model and the engine."""

from __future__ import annotations

import dataclasses
import math

from opbridge.catalog.declare.nan import EXACT, Nan
from opbridge.errors import InputError
from opbridge.proof.verify.journal import Journal
from opbridge.proof.verify.modes import MODES, Given, Modes
from opbridge.proof.verify.small_input import SmallInput
from opbridge.proof.verify.verification import DEFAULT_SEED

__all__ = ["Tolerance", "VerifyOptions"]


@dataclasses.dataclass(frozen=True)
class Tolerance:
    """The tolerances of ``numpy.allclose``, which replace the tolerance.

    Attributes:
        rtol: The relative tolerance.
        atol: The absolute tolerance.
    """

    rtol: float
    atol: float


@dataclasses.dataclass(frozen=True)
class VerifyOptions:
    """How to verify; see :func:`opbridge.verify`.

    Attributes:
        seed: The seed of the fresh inputs, of random draws and of perturbed inputs.
        inputs: The user's own inputs, which replace the fresh ones.
        rtol: The relative tolerance. If ``rtol`` or ``atol`` is given, ``numpy.allclose``'s test against the
            reference's own result replaces the tolerance; the one that is not given is 0.
        atol: The absolute tolerance.
        bisect: Whether to find the first mismatching node on cases that fail.
        trace: Whether to compare the values inside the model on the first case.
        timings: Whether to measure the time of each node.
        modes: The additional checks.
        small: The file for a small failing input; None if none is searched for.
        journal: The record of an interrupted verification of the user's own inputs.
        nan: What the model does with NaN; if it assumes that there is none, runs with NaN are not judged.
    """

    seed: int = DEFAULT_SEED
    inputs: Given | None = None
    rtol: float | None = None
    atol: float | None = None
    bisect: bool = True
    trace: bool = False
    timings: bool = False
    modes: Modes = MODES
    small: SmallInput | None = None
    journal: Journal = dataclasses.field(default_factory=Journal)
    nan: Nan = EXACT

    @property
    def tolerance(self) -> Tolerance | None:
        """The tolerance that replaces the tolerance, if one is given.

        Raises:
            InputError: ``rtol`` or ``atol`` is negative or not finite.
        """
        if self.rtol is None and self.atol is None:
            return None
        for name, value in (("rtol", self.rtol), ("atol", self.atol)):
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise InputError(
                    f"{name}={value} is not valid: a tolerance is a number of at least 0.",
                    fix=f"pass, for example, {name}=1e-4.",
                )
        return Tolerance(self.rtol or 0.0, self.atol or 0.0)
