"""What the nodes of a model cost in an engine, asked in a child process of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from opbridge import engines
from opbridge.engines.process.host import EngineProcess
from opbridge.engines.roles import Profiles
from opbridge.errors import EngineError

__all__ = ["NodeTime", "profile_isolated"]


@dataclasses.dataclass(frozen=True)
class NodeTime:
    """What one node costs.

    Attributes:
        node: Its name, as far as the engine kept it; what the engine made by itself has the engine's name.
        operator: Its operator, as the engine calls it.
        seconds: The time of one run, nodes inside of it included.
    """

    node: str
    operator: str
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """The time as JSON data."""
        return dataclasses.asdict(self)


def profile_isolated(
    engine: str, model: Path, feeds: Mapping[str, np.ndarray], *, libraries: Sequence[Path] = (), runs: int = 7
) -> tuple[NodeTime, ...]:
    """What :meth:`opbridge.engines.base.Engine.profile` says, from a child process.

    Raises:
        EngineError: The engine does not tell, fails, crashes, or hangs.
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
    return tuple(NodeTime(**item) for item in answer["nodes"])
