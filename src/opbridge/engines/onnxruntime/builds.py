"""A build of ONNX Runtime that can be asked: the one in this process, or another in an environment of its own."""

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
    """The questions that a build answers."""

    @property
    def version(self) -> str:
        """The version of the build."""

    def lists(self) -> tuple[list[Any], list[Any]] | None:
        """The operator schemas and the kernels of the build; None if it is too old to list them."""

    def refusal_of(self, model: bytes) -> str | None:
        """Why the build does not take this serialized model, as its message in one line; None if it takes it."""


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
        """Create a session of the model without running it; see :class:`Build`."""
        onnxruntime = native.runtime()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        # Constant folding would run nodes.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.enable_cpu_mem_arena = False
        try:
            onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            return native.clean_message(error)
        return None

    def answer(self, question: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Answer the questions of the builds below, in the child process."""
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
    """The onnxruntime package of this process, with models judged in a child process, in which a crash is a refusal."""

    def __init__(self) -> None:
        self._engine = AskedEngine("onnxruntime", "onnxruntime")

    def refusal_of(self, model: bytes) -> str | None:
        """See :class:`Build`."""
        native.runtime()  # A missing package is not a refusal.
        return _refusal(self._engine, model)


class OtherBuild:
    """A build in an environment of its own, asked through a child process that lives as long as this object."""

    def __init__(self, environment: EngineEnvironment) -> None:
        self._environment = environment
        self._engine = AskedEngine(f"onnxruntime=={self.version}", "onnxruntime", environment.python)

    @property
    def version(self) -> str:
        """The version that the package reported when the environment was created."""
        return self._environment.version

    @functools.cache  # noqa: B019 - an engine lives as long as its process
    def lists(self) -> tuple[list[Any], list[Any]] | None:
        """See :class:`Build`."""
        reply = self._engine.answer("listing its kernels", {"about": "lists"})
        if "schemas" not in reply:
            return None
        schemas = [SimpleNamespace(**{**item, **_formals(item)}) for item in reply["schemas"]]
        return schemas, [SimpleNamespace(**item) for item in reply["kernels"]]

    def refusal_of(self, model: bytes) -> str | None:
        """See :class:`Build`; a crash counts as a refusal."""
        return _refusal(self._engine, model)


def _refusal(engine: AskedEngine, model: bytes) -> str | None:
    try:
        reply = engine.answer("judging a node", {"about": "model"}, {"model": np.frombuffer(model, np.uint8)})
    except EngineError as error:
        return error.message
    return None if reply["refusal"] is None else str(reply["refusal"])


def _formals(schema: Mapping[str, Any]) -> dict[str, list[SimpleNamespace]]:
    return {key: [SimpleNamespace(typeStr=name) for name in schema[key]] for key in ("inputs", "outputs")}
