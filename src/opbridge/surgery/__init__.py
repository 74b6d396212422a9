"""Edits to existing ONNX models. The folder ``verbs`` has one file per verb.

Each verb takes a path, an ``onnx_ir.Model``, an ``onnx.ModelProto`` or the result of another verb, leaves its argument
unchanged, and returns an :class:`~opbridge.surgery.edited.Edited`: the new model and a list of the changes. A verb
raises :class:`~opbridge.errors.InputError` instead of returning an invalid model.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opbridge.surgery.verbs.attach import attach
    from opbridge.surgery.verbs.collapse import collapse
    from opbridge.surgery.verbs.convert_dtype import convert_dtype
    from opbridge.surgery.verbs.delete import delete
    from opbridge.surgery.verbs.diff import diff
    from opbridge.surgery.verbs.extract import extract
    from opbridge.surgery.verbs.fuse import fuse
    from opbridge.surgery.verbs.inline import inline
    from opbridge.surgery.verbs.insert import insert
    from opbridge.surgery.verbs.join import join
    from opbridge.surgery.verbs.rename import rename
    from opbridge.surgery.verbs.set_attributes import set_attributes
    from opbridge.surgery.verbs.set_dimensions import set_dimensions

__all__ = [
    "attach",
    "collapse",
    "convert_dtype",
    "delete",
    "diff",
    "extract",
    "fuse",
    "inline",
    "insert",
    "join",
    "rename",
    "set_attributes",
    "set_dimensions",
]


def __getattr__(name: str) -> Any:
    # Only fuse needs PyTorch, so a verb is imported when it is first used.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.verbs.{name}"), name)
