"""All models of benchmarks/models.py."""

from __future__ import annotations

import models_of_transformers
import models_of_vision

__all__ = ["MODELS"]

MODELS = {**models_of_vision.MODELS, **models_of_transformers.MODELS}
