"""The installed onnxruntime package: the only module that imports it and that uses its private binding."""

from __future__ import annotations

import functools
import re
from typing import Any

from opbridge.engines.importing import import_engine

__all__ = ["clean_message", "runtime", "schemas_and_kernels"]

_STATUS = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")
_LOADING = re.compile(r"^Load model from .*? failed: ?")
_PLACE = re.compile(r"\S*[/\\]onnxruntime[/\\]\S+\.(?:cc|h|cu|cuh|mm):\d+ ")
_NODE = re.compile(r"Non-zero status code returned while running (\S+) node\. Name:'([^']*)' Status Message: ")


@functools.cache
def runtime() -> Any:
    """The ``onnxruntime`` module.

    Raises:
        EngineNotInstalledError: The package is not installed, or can't be imported.
    """
    return import_engine(
        "onnxruntime", has="InferenceSession", package="onnxruntime", install="pip install onnxruntime"
    )


def schemas_and_kernels() -> tuple[list[Any], list[Any]] | None:
    """The schemas and kernels of the installed build; None before release 1.23, which has no such functions.

    Schemas have name, domain, since_version, deprecated, inputs and outputs; kernels have op_name, domain,
    version_range, provider and type_constraints.
    """
    runtime()
    try:
        from onnxruntime.capi import onnxruntime_pybind11_state as state

        return list(state.get_all_operator_schema()), list(state.get_all_opkernel_def())
    except (ImportError, AttributeError):
        return None


def clean_message(error: BaseException) -> str:
    """The engine's message in one line, without its status prefix and locations in its C++ source."""
    text = _STATUS.sub("", " ".join(str(error).split()))
    while (place := _PLACE.search(text)) is not None:
        text = text[: place.start()] + text[_end_of_signature(text, place.end()) :].lstrip()
    text = _LOADING.sub("", text)
    text = _NODE.sub(lambda match: f"node {match.group(2)!r} ({match.group(1)}): ", text)
    return text.strip() or type(error).__name__


def _end_of_signature(text: str, start: int) -> int:
    """The end of a C++ function signature at ``start``; ``start`` if there is none."""
    position = text.find("(", start)
    if position < 0:
        return start
    depth = 0
    while position < len(text):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        position += 1
        if depth == 0 and text[position : position + 1] != "(":
            break
    suffix = " const"
    return position + len(suffix) if text.startswith(suffix, position) else position
