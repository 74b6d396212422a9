"""The time of each node of a model in an engine, with the torch operator that the node comes from."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from opbridge.bundle.bundle import Bundle
from opbridge.engines.base import Engine
from opbridge.engines.profiling import NodeTime, profile_isolated
from opbridge.errors import EngineError
from opbridge.proof.verify.trace import Timing
from opbridge.proof.verify.verification import Verification

__all__ = ["CapturedCall", "timed", "with_targets"]

_BY_THE_ENGINE = re.compile(r"(_nchwc|_token_\d+|__\d+)$")
"""The suffixes that engines append to the name of a node that they changed or split."""


@dataclasses.dataclass(frozen=True)
class CapturedCall:
    """A call in the captured graph.

    Attributes:
        name: The name of the call's node.
        target: The torch operator, as users write it.
        seconds: PyTorch's time for the call.
        users: The names of the nodes that use the result.
        computes: Whether the call computes new numbers, and does not return a view of its input.
    """

    name: str
    target: str
    seconds: float
    users: tuple[str, ...] = ()
    computes: bool = True


def timed(
    results: Sequence[Verification],
    bundle: Bundle,
    engines: Sequence[Engine],
    feeds: Mapping[str, np.ndarray],
    calls: Sequence[CapturedCall] = (),
) -> list[Verification]:
    """Verifications with the times of the nodes; without times, a note of the first case gives the reason.

    Args:
        results: The verifications of the engines, each with and without its kernels, in the order of
            :meth:`Bundle.runs`.
        bundle: The bundle.
        engines: The engines.
        feeds: Inputs by name.
        calls: The calls of the captured graph, in its order; empty for a bundle of an ONNX model.
    """
    runs = [(engine, libraries) for engine in engines for _, libraries in bundle.runs(engine.name)]
    found = []
    for result, (engine, libraries) in zip(results, runs, strict=True):
        if not result.cases:
            found.append(result)
            continue
        try:
            times = profile_isolated(engine.name, bundle.model_file(engine.name), feeds, libraries=libraries)
        except EngineError as error:
            found.append(_with_note(result, f"the times of its nodes are not available: {error.message}"))
            continue
        found.append(dataclasses.replace(result, timings=with_targets(times, bundle.sources, calls)))
    return found


def with_targets(
    times: Sequence[NodeTime], sources: Mapping[str, Any], calls: Sequence[CapturedCall]
) -> tuple[Timing, ...]:
    """An engine's times, each with the torch operators that its node computes, and PyTorch's time for these operators.

    Engines fuse nodes: a convolution, a normalization and an activation become one node with the name of one of them.
    The time of a call without a node of its own is therefore added to the node that uses the call's result.

    Args:
        times: The times that the engine measured.
        sources: The content of ``sources.json``; ``captured`` and ``values`` map to nodes of the captured graph.
        calls: The calls of the captured graph, in its order.
    """
    of_values = {value: str(place[0]) for value, place in sources.get("values", {}).items()}
    captured = {**of_values, **sources.get("captured", {})}
    owners = [_captured_node(item.node, captured) for item in times]
    targets, seconds = _groups(calls, {name for name in owners if name})
    labels = [targets.get(owner, "") for owner in owners]
    return tuple(
        Timing(item.node, item.operator, item.seconds, label, seconds.get(label))
        for item, label in zip(times, labels, strict=True)
    )


def _groups(calls: Sequence[CapturedCall], owners: set[str]) -> tuple[dict[str, str], dict[str, float]]:
    """The operators that each owner computes, and PyTorch's time for all calls of equal groups."""
    owner_of: dict[str, str] = {}
    for call in reversed(calls):
        if call.name in owners:
            owner_of[call.name] = call.name
        elif found := next((owner_of[user] for user in call.users if user in owner_of), None):
            owner_of[call.name] = found
    members: dict[str, list[CapturedCall]] = {}
    for call in calls:
        if call.name in owner_of:
            members.setdefault(owner_of[call.name], []).append(call)
    targets = {owner: _label(group) for owner, group in members.items()}
    seconds: dict[str, float] = {}
    for owner, group in members.items():
        seconds[targets[owner]] = seconds.get(targets[owner], 0.0) + sum(call.seconds for call in group)
    return targets, seconds


def _label(group: Sequence[CapturedCall]) -> str:
    """The operators of a group, without those that only return views, unless all of them do."""
    computing = [call for call in group if call.computes]
    return " + ".join(dict.fromkeys(call.target for call in computing or group[-1:]))


def _captured_node(name: str, captured: Mapping[str, str]) -> str:
    """The captured node of an engine's node; engines append suffixes to the names of nodes that they change or fuse."""
    while name not in captured:
        shorter = _BY_THE_ENGINE.sub("", name)
        name = name.rpartition("/")[0] if shorter == name else shorter
        if not name:
            return ""
    return captured[name]


def _with_note(result: Verification, note: str) -> Verification:
    first = dataclasses.replace(result.cases[0], notes=(*result.cases[0].notes, note))
    return dataclasses.replace(result, cases=(first, *result.cases[1:]))
