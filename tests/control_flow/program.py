"""A small program whose control flow depends on tensors, with inputs that take every path."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch

__all__ = ["DOWN", "PROGRAMS", "REFUSED", "UP", "Program", "counts", "program", "refused"]

UP, DOWN = ([1.0, 2.0, 3.0],), ([-1.0, -2.0, -3.0],)


@dataclasses.dataclass(frozen=True)
class Program:
    """A program.

    Attributes:
        name: Its name.
        model: A function, or a function that makes a module.
        nodes: The ONNX operators of control flow that the written model has.
        cases: The inputs: each takes another path. The first is the example.
        dynamic_shapes: As for ``torch.export.export``.
        message: For a program that is refused: what the error says.
    """

    name: str
    model: Any
    nodes: frozenset[str]
    cases: Sequence[tuple[Any, ...]]
    dynamic_shapes: Any = None
    message: str = ""

    def made(self) -> Any:
        """The model."""
        return self.model() if isinstance(self.model, type) else self.model

    def inputs(self) -> list[tuple[torch.Tensor, ...]]:
        """The inputs of each case as tensors."""
        return [tuple(map(torch.as_tensor, case)) for case in self.cases]


PROGRAMS: list[Program] = []
REFUSED: list[Program] = []


def program(*nodes: str, cases: Sequence[tuple[Any, ...]] = (UP, DOWN), dynamic: Any = None) -> Callable[[Any], Any]:
    """Add a program to the table."""

    def add(model: Any) -> Any:
        PROGRAMS.append(Program(model.__name__, model, frozenset(nodes), cases, dynamic))
        return model

    return add


def refused(message: str, cases: Sequence[tuple[Any, ...]] = (UP, DOWN)) -> Callable[[Any], Any]:
    """Add a program that can't be converted, with a part of the error's message."""

    def add(model: Any) -> Any:
        REFUSED.append(Program(model.__name__, model, frozenset(), cases, None, message))
        return model

    return add


def counts(*numbers: int) -> list[tuple[Any, ...]]:
    """Cases of a vector and a number of iterations."""
    return [([0.5, -1.0, 2.0], number) for number in numbers]
