"""Measures the error as a function of the depth: compares the values that the engine computes in the whole model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from opbridge.atomic import TemporaryFolder
from opbridge.proof.bisect.bisection import comparable_sizes, traced_value
from opbridge.proof.bisect.intermediates import Intermediate, ReferenceValues, judged, portions
from opbridge.proof.bisect.intermediates_engine import EngineModel
from opbridge.proof.verify.options import Tolerance
from opbridge.proof.verify.trace import Trace, TracedValue

__all__ = ["MOST_VALUES", "trace"]

MOST_VALUES = 256
"""The number of values that a plot of the error against the depth can show."""


def trace(
    case: str,
    model: EngineModel,
    reference: ReferenceValues,
    feeds: Mapping[str, np.ndarray],
    *,
    most_bytes: int,
    most_values: int = MOST_VALUES,
    tolerance: Tolerance | None = None,
) -> Trace:
    """Compare intermediate values with the reference's, on one case.

    Args:
        case: The case's name.
        model: The engine's model.
        reference: The reference's values.
        feeds: The case's inputs.
        most_bytes: The number of bytes of intermediate values to hold at a time.
        most_values: The largest number of values, which are evenly spaced over the depth.
        tolerance: The tolerance that replaces the tolerance.

    Raises:
        EngineError: The engine refuses the model with these values as outputs, or fails.
    """
    known = [name for name in model.values if name in reference.names]
    sizes = comparable_sizes(model, reference, known)
    chosen = _spread([name for name in known if name in sizes], most_values)
    found: dict[str, TracedValue] = {}
    with TemporaryFolder() as folder:
        # The reference is slower than the engine, so it runs only once, and the engine's results are stored on disk.
        results: dict[str, _Kept] = {}
        for portion in portions(chosen, sizes, most_bytes):
            for name, array in model.run(portion, feeds).items():
                results[name] = _Kept.write(array, Path(folder) / str(len(results)))

        def see(name: str, value: Intermediate) -> None:
            if not value.random:
                status, verdict = judged(
                    results[name].read(),
                    value,
                    longest_sum=reference.longest_sum,
                    tolerance=tolerance,
                    nearby=lambda: reference.nearby(name),
                )
                found[name] = traced_value(model, reference, name, status, verdict)

        reference.visit(chosen, see)
    values = tuple(found[name] for name in chosen if name in found)
    return Trace(case, model.depth, values, model.runs)


@dataclasses.dataclass(frozen=True)
class _Kept:
    """An array in a file, of any ONNX element type."""

    file: Path
    dtype: np.dtype
    shape: tuple[int, ...]

    @classmethod
    def write(cls, array: np.ndarray, file: Path) -> _Kept:
        file.write_bytes(array.tobytes())
        return cls(file, array.dtype, array.shape)

    def read(self) -> np.ndarray:
        return np.frombuffer(self.file.read_bytes(), self.dtype).reshape(self.shape)


def _spread(names: Sequence[str], most: int) -> list[str]:
    """At most ``most`` of the names, evenly spaced, including the first and the last."""
    if len(names) <= most:
        return list(names)
    return [names[round(index * (len(names) - 1) / (most - 1))] for index in range(most)]
