"""The time of each node, from ONNX Runtime's profiler."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from opbridge.atomic import TemporaryFolder
from opbridge.engines.onnxruntime.session import load_session
from opbridge.engines.profiling import NodeTime

__all__ = ["node_times", "profile_model"]

_SUFFIX = "_kernel_time"


def profile_model(
    path: Path, feeds: Mapping[str, np.ndarray], *, libraries: Sequence[Path], runs: int
) -> tuple[NodeTime, ...]:
    """See :meth:`opbridge.engines.roles.Profiles.profile`."""
    with TemporaryFolder() as folder:
        session = load_session(path, threads=None, providers=None, libraries=libraries, profile=Path(folder) / "times")
        for _ in range(1 + runs):
            session.run(feeds)
        events = json.loads(Path(session.end_profiling()).read_bytes())
    return node_times(events)


def node_times(events: Sequence[Mapping[str, Any]]) -> tuple[NodeTime, ...]:
    """The median time of each node, in the order in which they ran, from the events of a profile.

    The first run, which allocates memory and reads weights, is left out. Nodes inside a Loop or an If are left out too,
    since the time of the outer node includes them.
    """
    runs = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e.get("name") == "model_run")[1:]
    found: dict[tuple[str, str], dict[int, float]] = {}
    end = -1
    for event in sorted(filter(_is_node, events), key=lambda event: (event["ts"], -event["dur"])):
        begin = event["ts"]
        if begin < end:
            continue
        end = begin + event["dur"]
        number = next((number for number, (first, last) in enumerate(runs) if first <= begin <= last), None)
        if number is not None:
            key = (event["name"].removesuffix(_SUFFIX), event["args"].get("op_name", ""))
            of_run = found.setdefault(key, {})
            of_run[number] = of_run.get(number, 0.0) + event["dur"] * 1e-6
    return tuple(
        NodeTime(node, operator, statistics.median(seconds.values())) for (node, operator), seconds in found.items()
    )


def _is_node(event: Mapping[str, Any]) -> bool:
    return event.get("cat") == "Node" and str(event.get("name", "")).endswith(_SUFFIX)
