"""Modules of the table that opbridge refuses, changed as the printed fix says.

Where the fix of one dimension leads to a fix of the next one, both are followed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from side_by_side import Situation
from torch.export import Dim

__all__ = ["AS_PRINTED", "FIXES", "Fix"]

AS_PRINTED = ", as printed"
"""Follows the name of a module in the rows of a fix."""


@dataclasses.dataclass(frozen=True)
class Fix:
    """A printed fix.

    Attributes:
        text: What was done.
        dimensions: The new declaration of dimensions, by name; None for one that is left out of ``dynamic_shapes``.
        before: What is done before the export.
    """

    text: str
    dimensions: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    before: Callable[[Situation], Any] = lambda situation: None

    def applied(self, situation: Situation) -> Situation:
        """The module and its inputs with this change."""
        self.before(situation)
        return dataclasses.replace(situation, dynamic_shapes=self._declared(situation.dynamic_shapes))

    def _declared(self, shapes: Any) -> Any:
        if isinstance(shapes, Mapping):
            changed = {key: self._declared(entry) for key, entry in shapes.items()}
            is_of_axes = all(isinstance(key, int) for key in shapes)
            return {key: entry for key, entry in changed.items() if entry is not None or not is_of_axes}
        if isinstance(shapes, list | tuple):
            return type(shapes)(map(self._declared, shapes))
        return self.dimensions.get(shapes, shapes) if isinstance(shapes, str) else shapes


def _run_once(situation: Situation) -> None:
    situation.model(*situation.args, **situation.kwargs)


FIXES = {
    "kornia/find_homography_dlt": Fix("points is Dim('points', min=5)", {"points": Dim("points", min=5)}),
    "torchaudio/PitchShift": Fix(
        "the model runs once before the export, time left out of dynamic_shapes", {"time": None}, before=_run_once
    ),
    "torchaudio/HDemucs": Fix("time left out of dynamic_shapes", {"time": None}),
    "torchaudio/Emformer": Fix("frames left out of dynamic_shapes", {"frames": None}),
    "monai/SlidingWindowInferer": Fix("batch left out of dynamic_shapes", {"batch": None}),
    "x-transformers/Encoder": Fix("length left out of dynamic_shapes", {"length": None}),
    "mambapy/Mamba": Fix("length left out of dynamic_shapes", {"length": None}),
    "neuraloperator/FNO": Fix(
        "height is Dim('height', min=7), then left out of dynamic_shapes; width is Dim('width', min=8)",
        {"height": None, "width": Dim("width", min=8)},
    ),
    "neuraloperator/UNO": Fix(
        "height is Dim('height', min=10), width is Dim('width', min=11)",
        {"height": Dim("height", min=10), "width": Dim("width", min=11)},
    ),
}
