"""The installed openvino package: the only module that imports it and reads its files."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opbridge.engines.importing import import_engine
from opbridge.engines.own import own_operators

__all__ = ["clean_message", "folder", "make_core", "newest_opset", "runtime", "version"]

_INSTALL = "pip install --upgrade openvino"
_PLACE = re.compile(r"(?:Exception from |Check '.*?' failed at )\S+?:\d+:\s*")
_SCHEMA = re.compile(rb"OpSet_Onnx_ver(\d+)E")


@functools.cache
def runtime() -> Any:
    """The ``openvino`` module.

    Raises:
        EngineNotInstalledError: The package is not installed, can't be imported, or is too old.
    """
    return import_engine("openvino", has="Core", package="openvino", install=_INSTALL)


def version() -> str:
    """The release: "2026.4.1"."""
    return str(runtime().__version__).partition("-")[0]


def folder() -> Path:
    """The folder of the package, with its headers and libraries."""
    return Path(runtime().__file__).parent


@functools.cache
def newest_opset() -> int:
    """The newest version of the standard domain whose schemas the ONNX frontend has.

    OpenVINO takes models of any version, and reads those of a newer version by the rules of older ones. So
    the answer comes from its library file, which contains the names of its schemas.
    """
    places = [*folder().glob("libs/*openvino_onnx_frontend*"), *folder().glob("libs/openvino_onnx_frontend*")]
    versions = [int(number) for place in places for number in _SCHEMA.findall(place.read_bytes())]
    return max(versions, default=18)


def make_core(libraries: Sequence[Path] = ()) -> Any:
    """A Core with opbridge's operators for the engine and with libraries of kernels."""
    core = runtime().Core()
    from openvino.frontend.onnx import ConversionExtension

    for target, module in own_operators("openvino").items():
        core.add_extension(ConversionExtension(target.rpartition("::")[2], module.convert))
    for library in libraries:
        core.add_extension(str(Path(library).absolute()))
    return core


def clean_message(error: BaseException) -> str:
    """The engine's message in one line, without locations in its C++ source."""
    text = " ".join(_PLACE.sub("", str(error)).split())
    for phrase in ("FrontEnd API failed with OpConversionFailure: ", "Model wasn't fully converted. "):
        text = text.replace(phrase, "")
    detailed = re.search(r"Failed operations detailed log: (.*?)(?: Summary:|$)", text)
    if detailed is not None:
        text = detailed.group(1)
    return re.sub(r"^Summary: ", "", text).strip(" -") or type(error).__name__
