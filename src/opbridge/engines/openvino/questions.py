"""Ask OpenVINO about small models in a child process, since its frontend crashes on some nodes."""

from __future__ import annotations

import dataclasses
import functools
import io
from collections.abc import Mapping
from typing import Any

import numpy as np

from opbridge.engines.asked import AskedEngine
from opbridge.engines.openvino import native
from opbridge.errors import EngineCrashError

__all__ = ["Answer", "OpenVinoQuestions", "answer"]


@dataclasses.dataclass(frozen=True)
class Answer:
    """OpenVINO's answer for a model.

    Attributes:
        problem: Why the model can't be converted, in one line; empty if it can.
        left: The types of the operations that the CPU plugin does not take.
        crashed: How the engine crashed; empty if it did not.
    """

    problem: str = ""
    left: tuple[str, ...] = ()
    crashed: str = ""


class OpenVinoQuestions:
    """The installed OpenVINO in a child process.

    Args:
        name: The engine's name in error messages.
    """

    def __init__(self, name: str) -> None:
        self._engine = AskedEngine(name, "openvino")

    def about(self, model: bytes) -> Answer:
        """OpenVINO's answer for a serialized ONNX model."""
        try:
            reply = self._ask({"about": "model"}, {"model": np.frombuffer(model, np.uint8)})
        except EngineCrashError as error:
            return Answer(crashed=error.message)
        return Answer(reply["problem"], tuple(reply["left"]))

    @functools.cached_property
    def float64_is(self) -> str:
        """The type in which a compiled model adds float64 numbers."""
        return str(self._ask({"about": "float64"})["type"])

    def _ask(self, question: Mapping[str, Any], arrays: Mapping[str, np.ndarray] | None = None) -> dict[str, Any]:
        return self._engine.answer("converting a model of one node", question, arrays)


def answer(question: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Answer a question of :class:`OpenVinoQuestions`, in the child process."""
    if question["about"] == "float64":
        return {"type": _float64_is()}
    core = _core()
    try:
        converted = core.read_model(io.BytesIO(arrays["model"].tobytes()))
    except Exception as error:
        return {"problem": native.clean_message(error), "left": []}
    taken = core.query_model(converted, "CPU")
    left = [operation for operation in converted.get_ops() if operation.get_friendly_name() not in taken]
    return {"problem": "", "left": list(dict.fromkeys(operation.get_type_name() for operation in left))}


@functools.cache
def _core() -> Any:
    return native.make_core()


def _float64_is() -> str:
    """The type in which a compiled model adds float64 numbers."""
    opset = native.runtime().opset8
    one = opset.parameter([-1], native.runtime().Type.f64)
    model = native.runtime().Model([opset.add(one, one)], [one])
    compiled = _core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    precisions = [
        str(operation.get_rt_info()["runtimePrecision"].astype(str))
        for operation in compiled.get_runtime_model().get_ops()
        if str(operation.get_rt_info()["layerType"].astype(str)) == "Eltwise"
    ]
    return {"f32": "float32"}.get(precisions[0], precisions[0]) if precisions else "float64"
