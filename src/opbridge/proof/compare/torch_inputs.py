"""Creates fresh inputs of a captured program at the sizes that another model fixes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from opbridge.errors import InputError, first_line
from opbridge.proof.verify.captured_graph import CapturedGraph
from opbridge.proof.verify.fresh import EXAMPLE_VALUES, WIDE_RANGE
from opbridge.proof.verify.inputs import InputSpecs
from opbridge.proof.verify.verification import DEFAULT_SEED

__all__ = ["inputs_at"]


def inputs_at(captured: Any, fixed: Mapping[str, int], seed: int | None) -> dict[str, np.ndarray]:
    """Create inputs, by name, that PyTorch accepts.

    Args:
        captured: The captured program.
        fixed: The sizes of some dimensions, by torch's symbolic expression.
        seed: The seed of the fresh inputs.

    Raises:
        InputError: PyTorch rejects inputs of these sizes.
    """
    specs = InputSpecs(captured)
    expressions = {str(size): size for item in specs.inputs for size in item.shape}
    stated = [(expressions[name], size) for name, size in fixed.items()]
    sizes = {**specs.sizes.base, **specs.sizes.solve(stated)}
    reference = CapturedGraph(captured.program)
    problem: Exception | None = None
    for scale in range(WIDE_RANGE, EXAMPLE_VALUES + 1):
        flat = specs.fresh(sizes, DEFAULT_SEED if seed is None else seed, scale)
        try:
            reference.run(flat, float64=False)
            return specs.feeds(flat)
        except Exception as error:
            problem = error
    text = ", ".join(f"{name}={size}" for name, size in sorted(fixed.items()))
    reason = first_line(problem or "")
    raise InputError(
        f"The models have no sizes in common: one accepts only {text}, which PyTorch refuses: {reason}",
        fix="compare models that take the same sizes.",
        details=str(problem),
    ) from problem
