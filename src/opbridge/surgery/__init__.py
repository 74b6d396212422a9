"""Surgery on existing ONNX models: one verb, one file.

Each verb takes a path, an ``onnx_ir.Model``, a ``onnx.ModelProto`` or another verb's result, changes none of them, and
returns an :class:`~opbridge.surgery.edited.Edited`: the new model and what was done. A result that would not be valid
is refused with an :class:`~opbridge.errors.InputError`.
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opbridge.surgery.attach import attach
    from opbridge.surgery.attributes import set_attributes
    from opbridge.surgery.collapse import collapse
    from opbridge.surgery.convert_dtype import convert_dtype
    from opbridge.surgery.delete import delete
    from opbridge.surgery.diff import diff
    from opbridge.surgery.extract import extract
    from opbridge.surgery.fuse import fuse
    from opbridge.surgery.inline import inline
    from opbridge.surgery.insert import insert
    from opbridge.surgery.join import join
    from opbridge.surgery.rename import rename
    from opbridge.surgery.set_dimensions import set_dimensions

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


class _Package(types.ModuleType):
    """The module of this package, on which a verb is not hidden by the file of its name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in __all__ and isinstance(value, types.ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    # Only fuse needs PyTorch, so each is imported when it is asked for.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = {"set_attributes": "attributes"}.get(name, name)
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
