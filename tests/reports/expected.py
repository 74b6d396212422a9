"""What opbridge does with the situations that it does not export rightly, each with the reason.

The test is strict in both directions: a situation that begins to come out right is taken out of this table.
"""

from __future__ import annotations

import dataclasses

from side_by_side import Verdict

__all__ = ["EXPECTED", "Expected", "expected_verdict"]


@dataclasses.dataclass(frozen=True)
class Expected:
    """An expected verdict other than "right".

    Attributes:
        verdict: As in ``side_by_side.py``.
        reason: Why, and what a user can do.
    """

    verdict: Verdict
    reason: str


EXPECTED: dict[str, Expected] = {
    "nested_tensor_from_jagged": Expected(
        "refused",
        "torch.export can't capture the making of a nested tensor.",
    ),
    "a jagged tensor as the input": Expected(
        "refused",
        "A nested tensor is no input of an ONNX model.",
    ),
    "quantize_dynamic of a GRU": Expected(
        "refused",
        "torch.export can't capture packed quantized weights.",
    ),
}


def expected_verdict(name: str) -> Verdict:
    """The verdict that is expected of opbridge for a situation."""
    return EXPECTED[name].verdict if name in EXPECTED else "right"
