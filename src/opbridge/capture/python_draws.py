"""Finds numbers that ``forward`` draws with Python's or NumPy's generator, and that would be constants in the model.

torch.export runs ``forward`` once, so that such a number, or a size made of it, is that of one run. A captured program
that depends on it is recognized by capturing again: the draws are then others.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from opbridge import findings
from opbridge.capture.failures import CaptureFailure
from opbridge.torch_graph.sources import SourceLine, frames_of_stack, innermost

__all__ = ["contents_of", "generator_states", "kept_generators", "refuse_constant_draws"]

_TRIES = 3
"""Two draws of few values may be equal. Only models that draw are captured again."""

_NAMED = {
    random: (
        "choice",
        "choices",
        "gauss",
        "getrandbits",
        "randint",
        "random",
        "randrange",
        "sample",
        "shuffle",
        "uniform",
    ),
    np.random: ("choice", "normal", "permutation", "rand", "randint", "randn", "random", "shuffle", "uniform"),
}


def generator_states() -> tuple[Any, ...]:
    """The states of Python's and NumPy's generators, which are equal if nothing was drawn in between."""
    numbers: Any = np.random.get_state()
    name, keys, *rest = numbers
    return random.getstate(), (name, keys.tobytes(), *rest)


def refuse_constant_draws(contents: tuple[str, ...], export: Callable[[], Any]) -> None:
    """Raise CaptureFailure if a captured program contains numbers that were drawn during the capture.

    Args:
        contents: The contents of the program, during whose capture the state of a generator changed.
        export: Captures the model again.
    """
    drawn: list[SourceLine] = []
    with kept_generators():
        for number in range(_TRIES):
            random.seed(number)
            np.random.seed(number)
            with _noting(drawn):
                again = export()
            if contents_of(again) != contents:
                where = drawn[0] if drawn else None
                raise CaptureFailure(findings.by_code("python-random").finding(where), details=contents_of(again)[0])


@contextlib.contextmanager
def kept_generators() -> Iterator[None]:
    """Restore the states of Python's and NumPy's generators after the block."""
    own, numbers = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(own)
        np.random.set_state(numbers)


def contents_of(program: torch.export.ExportedProgram) -> tuple[str, ...]:
    """The operators, shapes and constants of a program; the weights are the same in every capture."""
    shapes = [str(getattr(node.meta.get("val"), "shape", "")) for node in program.graph.nodes]
    constants = [str(value.tolist()) for value in program.constants.values() if isinstance(value, torch.Tensor)]
    return program.graph_module.code, *shapes, *constants


@contextlib.contextmanager
def _noting(drawn: list[SourceLine]) -> Iterator[None]:
    """Note the user's lines that call the generators by their modules' names."""
    originals = [(module, name, getattr(module, name)) for module, names in _NAMED.items() for name in names]

    def noting(original: Callable[..., Any]) -> Callable[..., Any]:
        def draw(*args: Any, **kwargs: Any) -> Any:
            line = innermost(frames_of_stack(), libraries=True)
            drawn.extend([] if line is None else [line])
            return original(*args, **kwargs)

        return draw

    for module, name, original in originals:
        setattr(module, name, noting(original))
    try:
        yield
    finally:
        for module, name, original in originals:
            setattr(module, name, original)
