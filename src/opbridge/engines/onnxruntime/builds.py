"""One build of ONNX Runtime as something to ask: the one in this process, or another in an environment of its own."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from opbridge.engines.asked import AskedEngine
from opbridge.engines.onnxruntime import native
from opbridge.errors import EngineError

if TYPE_CHECKING:
    from opbridge.engines.environments import EngineEnvironment

__all__ = ["Build", "InstalledBuild", "IsolatedBuild", "OtherBuild"]


class Build(Protocol):
    """What can be asked of a build."""

    @property
    def version(self) -> str:
        """Its version."""

    def lists(self) -> tuple[list[Any], list[Any]] | None:
        """Its operator schemas and its kernels; None if it is too old to say."""

    def refusal_of(self, model: bytes) -> str | None:
        """Why it does not take this serialized model, in its own words on one line; None if it does."""


class InstalledBuild:
    """The onnxruntime package of this process."""

    @property
    def version(self) -> str:
        """The installed version. Raises EngineNotInstalledError when there is none."""
        return str(native.runtime().__version__)

    def lists(self) -> tuple[list[Any], list[Any]] | None:
        """See :class:`Build`."""
        return native.schemas_and_kernels()

    def refusal_of(self, model: bytes) -> str | None:
        """See :class:`Build`: a session of it is created, and nothing is run."""
        onnxruntime = native.runtime()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        # Nothing is to be folded, and so nothing is run.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.enable_cpu_mem_arena = False
        try:
            onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            return native.clean_message(error)
        return None

    def answer(self, question: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """What the builds below ask, from the other side."""
        if question["about"] == "model":
            return {"refusal": self.refusal_of(arrays["model"].tobytes())}
        lists = self.lists()
        if lists is None:
            return {}
        schemas, kernels = lists
        return {
            "schemas": [
                {
                    "domain": schema.domain,
                    "name": schema.name,
                    "since_version": schema.since_version,
                    "deprecated": bool(schema.deprecated),
                    "inputs": [formal.typeStr for formal in schema.inputs],
                    "outputs": [formal.typeStr for formal in schema.outputs],
                }
                for schema in schemas
            ],
            "kernels": [
                {
                    "domain": kernel.domain,
                    "op_name": kernel.op_name,
                    "provider": kernel.provider,
                    "version_range": list(kernel.version_range),
                    "type_constraints": {key: list(types) for key, types in kernel.type_constraints.items()},
                }
                for kernel in kernels
            ],
        }


class IsolatedBuild(InstalledBuild):
    """That package too, but models of nodes are judged in a child process, where a crash is a refusal."""

    def __init__(self) -> None:
        self._engine = AskedEngine("onnxruntime", "onnxruntime")

    def refusal_of(self, model: bytes) -> str | None:
        """See :class:`Build`."""
        native.runtime()  # Where it is not installed, that is no refusal.
        return _refusal(self._engine, model)


class OtherBuild:
    """A build in an environment of its own, asked through a child process there, which lives as long as this."""

    def __init__(self, environment: EngineEnvironment) -> None:
        self._environment = environment
        self._engine = AskedEngine(f"onnxruntime=={self.version}", "onnxruntime", environment.python)

    @property
    def version(self) -> str:
        """Its version, as the package said when the environment was made."""
        return self._environment.version

    @functools.cache  # noqa: B019 - an engine lives as long as its process
    def lists(self) -> tuple[list[Any], list[Any]] | None:
        """See :class:`Build`."""
        said = self._engine.answer("listing its kernels", {"about": "lists"})
        if "schemas" not in said:
            return None
        schemas = [SimpleNamespace(**{**item, **_formals(item)}) for item in said["schemas"]]
        return schemas, [SimpleNamespace(**item) for item in said["kernels"]]

    def refusal_of(self, model: bytes) -> str | None:
        """See :class:`Build`; a crash is a refusal too."""
        return _refusal(self._engine, model)


def _refusal(engine: AskedEngine, model: bytes) -> str | None:
    try:
        said = engine.answer("judging a node", {"about": "model"}, {"model": np.frombuffer(model, np.uint8)})
    except EngineError as error:
        return error.message
    return None if said["refusal"] is None else str(said["refusal"])


def _formals(schema: Mapping[str, Any]) -> dict[str, list[SimpleNamespace]]:
    return {key: [SimpleNamespace(typeStr=name) for name in schema[key]] for key in ("inputs", "outputs")}
