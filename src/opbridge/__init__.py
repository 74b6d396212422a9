"""opbridge: run PyTorch models on inference engines that lack their operators, verified against PyTorch.

Importing this package imports neither torch nor an engine; each public name is imported on first use.
"""

from __future__ import annotations

from opbridge.version import __version__

TYPE_CHECKING = False
"""A type checker takes it for that of `typing`, whose import would be long: an interrupt can't be handled yet."""

if TYPE_CHECKING:
    from typing import Any

    from opbridge.bundle.bundle import Bundle
    from opbridge.bundle.load import load
    from opbridge.catalog.declare.custom_node import custom_node
    from opbridge.catalog.declare.operator import operator
    from opbridge.catalog.declare.spec import Sample, body_for, decomposition, fake_for, rewrite, translation
    from opbridge.catalog.declare.translation_table import translation_table
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
    from opbridge.findings.base import Finding
    from opbridge.kernels.declared import kernel_for
    from opbridge.proof.verify.verification import Verification
    from opbridge.surgery.verbs.convert_opset import convert_opset
    from opbridge.surgery.verbs.diff import diff
    from opbridge.surgery.verbs.extract import extract
    from opbridge.surgery.verbs.fuse import fuse
    from opbridge.surgery.verbs.inline import inline
    from opbridge.surgery.verbs.join import join
    from opbridge.verbs.bench import bench
    from opbridge.verbs.compare import compare
    from opbridge.verbs.diagnose import diagnose
    from opbridge.verbs.diagnosis import Diagnosis
    from opbridge.verbs.export import export
    from opbridge.verbs.reduce import reduce
    from opbridge.verbs.verify import verify

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
    "bench",
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
    "Diagnosis": "verbs.diagnosis",
    "Finding": "findings.base",
    "Sample": "catalog.declare.spec",
    "Verification": "proof.verify.verification",
    "bench": "verbs.bench",
    "body_for": "catalog.declare.spec",
    "compare": "verbs.compare",
    "convert_opset": "surgery.verbs.convert_opset",
    "custom_node": "catalog.declare.custom_node",
    "decomposition": "catalog.declare.spec",
    "diagnose": "verbs.diagnose",
    "diff": "surgery.verbs.diff",
    "export": "verbs.export",
    "extract": "surgery.verbs.extract",
    "fake_for": "catalog.declare.spec",
    "fuse": "surgery.verbs.fuse",
    "inline": "surgery.verbs.inline",
    "join": "surgery.verbs.join",
    "kernel_for": "kernels.declared",
    "load": "bundle.load",
    "operator": "catalog.declare.operator",
    "reduce": "verbs.reduce",
    "rewrite": "catalog.declare.spec",
    "translation": "catalog.declare.spec",
    "translation_table": "catalog.declare.translation_table",
    "verify": "verbs.verify",
}
"""The module of each public name that is not an error."""

_MODULES = ("legacy", "surgery", "testing", "vision")


def __getattr__(name: str) -> Any:
    import importlib

    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES.get(name, 'errors')}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES])
