"""The entry of a report."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from side_by_side import Situation


@dataclasses.dataclass(frozen=True)
class Report:
    """A situation and where it comes from.

    Attributes:
        name: What the user ran into, in a few words.
        link: The address of the report.
        make: Makes the model and its example.
    """

    name: str
    link: str
    make: Callable[[], Situation]
