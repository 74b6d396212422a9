"""Numbers that JSON does not have: infinities and NaN become the strings that ``float`` reads back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

__all__ = ["to_json"]


def to_json(value: Any) -> Any:
    """``value`` with every number that is not finite as a string, in mappings and sequences too."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return value
