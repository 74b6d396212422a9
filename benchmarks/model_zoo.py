"""Models of torchvision, timm and transformers with random weights and chosen inputs, as a collection for sweeps.

    opbridge sweep benchmarks/model_zoo.py -o results

Nothing is downloaded. Each model is verified at sizes other than the example's too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import models_of_transformers
import models_of_vision
from model_example import Example

__all__ = ["entries"]


def _entry(make: Callable[[], Example]) -> dict[str, Any]:
    example = make()
    return {
        "model": example.model,
        "args": example.args,
        "kwargs": dict(example.kwargs),
        "dynamic_shapes": example.dynamic_shapes,
    }


entries = {
    name: functools.partial(_entry, make)
    for name, make in {**models_of_vision.MODELS, **models_of_transformers.MODELS}.items()
}
