"""Hooks for other layers around a translation."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["AROUND_MODEL", "AROUND_TRANSLATION"]

AROUND_MODEL: list[Callable[[], AbstractContextManager[Callable[[ir.Model], None]]]] = []
"""Context managers around the making of a model, which consists of a translation for the model and one for each body.

Each yields a function that is called with the finished model. ``legacy`` adds one that counts symbolic functions.
"""

AROUND_TRANSLATION: list[Callable[..., AbstractContextManager[Callable[[ir.Model], None]]]] = []
"""Context managers around each translation, called with the program, its opset and the requested opset (or None).

Each yields a function that is called with the translated model. ``legacy`` adds one that runs symbolic functions.
"""
