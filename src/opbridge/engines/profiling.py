"""The time of each node of a model in an engine, measured in a child process."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from opbridge import engines
from opbridge.engines.process.host import EngineProcess
from opbridge.engines.roles import Profiles
from opbridge.errors import EngineError
from opbridge.records import StoredRecord

__all__ = ["NodeTime", "profile_isolated"]


@dataclasses.dataclass(frozen=True)
class NodeTime(StoredRecord):
    """The time of one node.

    Attributes:
        node: The node's name in the model; a node that the engine made has the engine's name for it.
        operator: The engine's name of the node's operator.
        seconds: The time of one run, including the nodes of subgraphs.
    """

    node: str
    operator: str
    seconds: float


def profile_isolated(
    engine: str, model: Path, feeds: Mapping[str, np.ndarray], *, libraries: Sequence[Path] = (), runs: int = 7
) -> tuple[NodeTime, ...]:
    """Call :meth:`opbridge.engines.roles.Profiles.profile` in a child process.

    Raises:
        EngineError: The engine does not measure nodes, fails, crashes, or hangs.
    """
    if not isinstance(engines.get(engine), Profiles):
        profiling = [name for name in engines.names() if isinstance(engines.get(name), Profiles)]
        raise EngineError(
            f"{engine} does not measure the time of each node.", fix=f"use an engine that does: {', '.join(profiling)}."
        )
    family, python = engines.place_of(engine)
    process = EngineProcess(engine, python)
    request = {
        "verb": "profile",
        "engine": family,
        "path": str(Path(model).absolute()),
        "libraries": [str(Path(library).absolute()) for library in libraries],
        "runs": runs,
    }
    try:
        answer, _ = process.ask("timing its nodes", request, feeds)
    finally:
        process.close()
    return tuple(NodeTime.from_dict(item) for item in answer["nodes"])
