"""OpenPPL's Python binding ``pyppl``: the only module that imports it."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from opbridge.errors import EngineNotInstalledError

__all__ = ["HOW_TO_BUILD", "Binding", "binding", "is_built"]

HOW_TO_BUILD = "docs/engines.md says how to build OpenPPL with its Python binding, and put it on PYTHONPATH."


class Binding:
    """The two modules of the binding.

    Attributes:
        nn: ``pyppl.nn``: engines, models, tensors.
        common: ``pyppl.common``: return codes and types.
    """

    def __init__(self, nn: Any, common: Any) -> None:
        self.nn = nn
        self.common = common

    @property
    def version(self) -> str:
        """The version of the installed build."""
        return ".".join(str(getattr(self.nn, f"PPLNN_VERSION_{part}")) for part in ("MAJOR", "MINOR", "PATCH"))

    def say(self, code: Any) -> str:
        """OpenPPL's text for a return code."""
        return str(self.common.GetRetCodeStr(code))


@functools.cache
def binding() -> Binding:
    """The installed binding.

    Raises:
        EngineNotInstalledError: The binding is missing, can't be imported, or has no x86 engine.
    """
    try:
        nn, common = importlib.import_module("pyppl.nn"), importlib.import_module("pyppl.common")
    except ModuleNotFoundError as error:
        raise EngineNotInstalledError("OpenPPL's Python binding pyppl is not installed.", fix=HOW_TO_BUILD) from error
    except (ImportError, OSError) as error:
        raise EngineNotInstalledError(
            f"OpenPPL's Python binding pyppl can't be imported: {error}", fix=HOW_TO_BUILD
        ) from error
    for part in ("x86", "onnx"):
        if not hasattr(nn, part):
            raise EngineNotInstalledError(f"This build of OpenPPL's pyppl has no part {part!r}.", fix=HOW_TO_BUILD)
    # By default OpenPPL logs every partition of every graph.
    nn.SetLoggingLevel(common.LOG_LEVEL_ERROR)
    return Binding(nn, common)


def is_built() -> bool:
    """Whether the binding can be imported here."""
    try:
        return bool(binding())
    except EngineNotInstalledError:
        return False
