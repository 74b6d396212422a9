"""Hooks for other layers around a capture."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from opbridge.catalog.declare.spec import OpSpec

if TYPE_CHECKING:
    import torch

__all__ = ["AROUND", "Observer"]


class Observer(Protocol):
    """An observer of one capture."""

    def finish(self, program: torch.export.ExportedProgram) -> tuple[OpSpec, ...]:
        """The declarations of operators that exist only in this program."""


AROUND: list[Callable[[], AbstractContextManager[Observer]]] = []
"""Context managers around each capture. ``legacy`` adds one that captures autograd.Functions as operators."""
