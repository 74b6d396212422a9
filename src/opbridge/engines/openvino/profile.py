"""The time of each node, from OpenVINO's performance counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from opbridge.engines.openvino.session import load_session
from opbridge.engines.profiling import NodeTime

__all__ = ["profile_model"]


def profile_model(
    path: Path, feeds: Mapping[str, np.ndarray], *, libraries: Sequence[Path], runs: int
) -> tuple[NodeTime, ...]:
    """See :meth:`opbridge.engines.roles.Profiles.profile`. A counter holds the mean of all runs."""
    session = load_session(path, threads=None, devices=None, libraries=libraries, profile=True)
    for _ in range(1 + runs):
        session.run(feeds)
    return tuple(
        NodeTime(info.node_name, info.node_type, info.real_time.total_seconds())
        for info in session.profiling_info()
        if info.status == info.Status.EXECUTED
    )
