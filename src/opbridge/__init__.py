"""opbridge: run PyTorch models on inference engines that lack their operators, proved equal to PyTorch.

Importing this package imports neither torch nor an engine; each public name is imported on first use.
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opbridge.bundle.bundle import Bundle
    from opbridge.bundle.load import load
    from opbridge.catalog.declare.custom_node import custom_node
    from opbridge.catalog.declare.operator import operator
    from opbridge.catalog.declare.spec import Sample, body_for, decomposition, fake_for, rewrite, translation
    from opbridge.catalog.declare.translation_table import translation_table
    from opbridge.compare import compare
    from opbridge.diagnose import Diagnosis, Finding
    from opbridge.errors import (
        BuildError,
        CaptureError,
        EngineCrashError,
        EngineError,
        EngineNotInstalledError,
        InputError,
        OpbridgeError,
        TranslationError,
        UnsupportedOperatorError,
        VerificationError,
    )
    from opbridge.kernels.declared import kernel_for
    from opbridge.onnx_model.opsets.public import convert_opset
    from opbridge.pipeline import diagnose, export, verify
    from opbridge.proof.verify.verification import Verification
    from opbridge.reduce import reduce
    from opbridge.surgery.diff import diff
    from opbridge.surgery.extract import extract
    from opbridge.surgery.fuse import fuse
    from opbridge.surgery.inline import inline
    from opbridge.surgery.join import join

__version__ = "0.1.0"

__all__ = [
    "BuildError",
    "Bundle",
    "CaptureError",
    "Diagnosis",
    "EngineCrashError",
    "EngineError",
    "EngineNotInstalledError",
    "Finding",
    "InputError",
    "OpbridgeError",
    "Sample",
    "TranslationError",
    "UnsupportedOperatorError",
    "Verification",
    "VerificationError",
    "__version__",
    "body_for",
    "compare",
    "convert_opset",
    "custom_node",
    "decomposition",
    "diagnose",
    "diff",
    "export",
    "extract",
    "fake_for",
    "fuse",
    "inline",
    "join",
    "kernel_for",
    "load",
    "operator",
    "reduce",
    "rewrite",
    "translation",
    "translation_table",
    "verify",
]

_HOMES = {
    "Bundle": "bundle.bundle",
    "Diagnosis": "diagnose",
    "Finding": "diagnose",
    "Sample": "catalog.declare.spec",
    "Verification": "proof.verify.verification",
    "body_for": "catalog.declare.spec",
    "compare": "compare",
    "convert_opset": "onnx_model.opsets.public",
    "custom_node": "catalog.declare.custom_node",
    "decomposition": "catalog.declare.spec",
    "diagnose": "pipeline",
    "diff": "surgery.diff",
    "export": "pipeline",
    "extract": "surgery.extract",
    "fake_for": "catalog.declare.spec",
    "fuse": "surgery.fuse",
    "inline": "surgery.inline",
    "join": "surgery.join",
    "kernel_for": "kernels.declared",
    "load": "bundle.load",
    "operator": "catalog.declare.operator",
    "reduce": "reduce",
    "rewrite": "catalog.declare.spec",
    "translation": "catalog.declare.spec",
    "translation_table": "catalog.declare.translation_table",
    "verify": "pipeline",
}
"""The module of each public name that is not an error."""


class _Package(types.ModuleType):
    """The module of this package, on which a function is not hidden by the submodule of the same name.

    Importing ``opbridge.verify`` makes the import system set that module as the attribute ``verify`` of this package.
    ``opbridge.verify`` must remain the function, so the assignment is dropped; ``from opbridge.proof.verify.verify import ...``
    needs no attribute, and ``importlib.import_module("opbridge.verify")`` gives the module.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, types.ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name in ("legacy", "surgery"):
        return importlib.import_module(f"{__name__}.{name}")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES.get(name, 'errors')}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
