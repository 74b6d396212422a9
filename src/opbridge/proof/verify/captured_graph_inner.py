"""Operators that run graphs inside the captured graph (cond, loops, contexts), in both runs of the reference."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from opbridge.proof.verify.float64_call import widen

__all__ = ["HIGHER_ORDER", "Pair", "joined"]


@dataclasses.dataclass
class Pair:
    """A value in both runs. A parameter's float64 value is created when it is used (``lazy``), and not kept."""

    own: Any
    float64: Any = None
    random: bool = False
    lazy: bool = False

    @property
    def float64_value(self) -> Any:
        """The value of the float64 run."""
        return widen(self.own) if self.lazy else self.float64


class Walks(Protocol):
    """The part of a run that the rules of this file use."""

    def graph(self, module: torch.fx.GraphModule, inputs: Sequence[Pair], path: str) -> list[Pair]:
        """The results of an inner graph."""


def joined(results: Sequence[Pair], random: bool) -> Pair:
    """The outputs of an inner graph as the one value of its node."""
    return Pair(
        tuple(pair.own for pair in results),
        tuple(pair.float64_value for pair in results),
        random or any(pair.random for pair in results),
    )


def _pairs(values: Any) -> list[Pair]:
    return [value if isinstance(value, Pair) else Pair(value, value) for value in values]


def _plain(value: Any) -> Any:
    return value.own if isinstance(value, Pair) else value


def _cond(walk: Walks, path: str, predicate: Any, true: Any, false: Any, operands: Any = ()) -> list[Pair]:
    branch = true if bool(_plain(predicate)) else false
    return walk.graph(_plain(branch), _pairs(operands), path)


def _while_loop(walk: Walks, path: str, condition: Any, body: Any, carried: Any, additional: Any = ()) -> list[Pair]:
    state, rest = _pairs(carried), _pairs(additional)
    while bool(walk.graph(_plain(condition), state + rest, path)[0].own):
        state = walk.graph(_plain(body), state + rest, path)
    return state


def _slices(pairs: Sequence[Pair], index: int) -> list[Pair]:
    return [Pair(pair.own[index], pair.float64_value[index], pair.random) for pair in pairs]


def _stacked(steps: Sequence[Sequence[Pair]]) -> list[Pair]:
    return [
        Pair(
            torch.stack([step.own for step in column]),
            torch.stack([step.float64_value for step in column]),
            any(step.random for step in column),
        )
        for column in zip(*steps, strict=True)
    ]


def _scan(walk: Walks, path: str, combine: Any, initial: Any, sequences: Any, additional: Any = ()) -> list[Pair]:
    state, rows, rest = _pairs(initial), _pairs(sequences), _pairs(additional)
    steps = []
    for index in range(rows[0].own.shape[0]):
        results = walk.graph(_plain(combine), state + _slices(rows, index) + rest, path)
        state = results[: len(state)]
        steps.append(results[len(state) :])
    return state + _stacked(steps)


def _map(walk: Walks, path: str, function: Any, sequences: Any, additional: Any = ()) -> list[Pair]:
    rows, rest = _pairs(sequences), _pairs(additional)
    count = rows[0].own.shape[0]
    return _stacked([walk.graph(_plain(function), _slices(rows, index) + rest, path) for index in range(count)])


def _set_grad(walk: Walks, path: str, _enabled: Any, function: Any, *operands: Any) -> list[Pair]:
    return walk.graph(_plain(function), _pairs(operands), path)


def _autocast(
    walk: Walks, path: str, device: str, dtype: Any, enabled: bool, cache: Any, function: Any, *operands: Any
) -> list[Pair]:
    # Autocast leaves float64 tensors alone, so the float64 run needs no context of its own.
    with torch.autocast(device, dtype=dtype, enabled=enabled, cache_enabled=cache):
        return walk.graph(_plain(function), _pairs(operands), path)


HIGHER_ORDER: dict[str, Callable[..., list[Pair]]] = {
    "cond": _cond,
    "while_loop": _while_loop,
    "scan": _scan,
    "map_impl": _map,
    "wrap_with_set_grad_enabled": _set_grad,
    "wrap_with_autocast": _autocast,
}
