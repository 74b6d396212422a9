"""Attach function bodies and compiled kernels to custom nodes of other domains."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import onnx_ir as ir

from opbridge.catalog.declare.catalog import Catalog
from opbridge.engines import get
from opbridge.errors import InputError
from opbridge.ladder.build import Built
from opbridge.ladder.foreign_bodies import attach_bodies
from opbridge.ladder.kernel_rung import build_kernels, kernels_in
from opbridge.onnx_model.structure import did_you_mean
from opbridge.surgery.edited import Change, Edited, describe, finished, model_of
from opbridge.surgery.places import add_functions
from opbridge.vision.old_nodes import convert_old_nodes, declare_for

__all__ = ["Attached", "attach"]


@dataclasses.dataclass(frozen=True)
class Attached(Edited):
    """A model whose custom nodes can run.

    Attributes:
        libraries: The compiled kernels, by engine.
    """

    libraries: tuple[Built, ...] = ()

    def save(self, path: str | os.PathLike[str], *, external_data: bool | None = None, overwrite: bool = False) -> Path:
        """Write the model, and the library of each engine to ``path`` with ``.ENGINE.so`` appended."""
        target = super().save(path, external_data=external_data, overwrite=overwrite)
        for built in self.libraries:
            file = library_file(target, built)
            waiting = file.with_name(f".{file.name}.new")
            shutil.copyfile(built.library.path, waiting)
            os.replace(waiting, file)
        return target


def library_file(model: Path, built: Built) -> Path:
    """The path of the library for a model file."""
    return model.with_name(f"{model.name}.{built.engine}{built.library.path.suffix}")


def attach(
    model: Any,
    operators: Sequence[Any] = (),
    *,
    ops: Sequence[str | Path | ModuleType] = (),
    engines: Sequence[str] = (),
) -> Attached:
    """Attach to the custom nodes of a model the bodies and kernels that are declared for them.

    A body comes from ``@opbridge.operator`` or ``opbridge.body_for``, exported for each node's types and attributes, or
    from an onnxscript function with the node's domain and name. A kernel comes from ``.kernel(...)`` or
    ``opbridge.kernel_for``. A node that already has a body keeps it.

    Args:
        model: A path, an ``ir.Model`` or a ``ModelProto``. It is not changed.
        operators: The onnxscript functions to use as bodies.
        ops: Files with declarations, in addition to those of this process.
        engines: The engines to compile the kernels for.

    Raises:
        InputError: No declaration matches a node of the model.
        TranslationError: A body can't be exported.
        BuildError: A kernel does not compile.
    """
    own = model_of(model)
    custom = {f"{node.domain}::{node.op_type}" for node in own.graph.all_nodes() if node.domain}
    bare = {name for name in custom if not any(f"{key[0]}::{key[1]}" == name for key in own.functions)}
    changes = [_attach_function(own, operator, custom) for operator in operators]
    declare_for(own)
    catalog = Catalog.load(ops)
    own, converted = convert_old_nodes(own, catalog)
    changes += [Change(item.what, item.nodes) for item in converted]
    for target in attach_bodies(own, catalog):
        changes.append(Change(f"{target} has a body", _nodes(own, target)))
    kernels = kernels_in(own, catalog)
    libraries = build_kernels(kernels, [get(name) for name in engines], lambda stage: None)
    for engine in libraries:
        changes += [
            Change(f"{kernel.target} has a kernel for {engine}", _nodes(own, kernel.target)) for kernel in kernels
        ]
    if not changes:
        files = [str(item) for item in ops if isinstance(item, str | Path)]
        declared = f"declared in {', '.join(files)}" if files else "declared"
        raise InputError(
            f"Nothing that is {declared} fits a node of the model"
            + (f", whose custom nodes without a body are {', '.join(sorted(bare))}." if bare else "."),
            fix="declare a body with opbridge.body_for('domain::Op') or a kernel with opbridge.kernel_for, and name "
            "that file with --ops; for a kernel name an engine too.",
        )
    done = finished(model, own, changes)
    return Attached(done.model, done.changes, tuple(libraries.values()))


def _attach_function(model: ir.Model, operator: Any, custom: set[str]) -> Change:
    if not hasattr(operator, "to_function_proto"):
        raise InputError(
            f"{getattr(operator, '__name__', operator)!r} is not an onnxscript function.",
            fix="pass an onnxscript function here; torch functions are declared with opbridge.body_for.",
        )
    function = ir.from_proto(operator.to_function_proto())
    target = f"{function.domain}::{function.name}"
    if target not in custom:
        raise InputError(f"The model has no custom node {target!r}.", fix=did_you_mean(target, sorted(custom)))
    function.opset_imports[""] = model.opset_imports.get("", 1)
    if function.identifier() in model.functions:
        raise InputError(f"{target} has a body already.", fix=f"inline it first: opbridge.inline(model, [{target!r}]).")
    add_functions(model, [function])
    return Change(f"{target} has a body", _nodes(model, target))


def _nodes(model: ir.Model, target: str) -> tuple[str, ...]:
    return tuple(describe(node) for node in model.graph.all_nodes() if f"{node.domain}::{node.op_type}" == target)
