"""Rename values, nodes, dimensions and operators."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import onnx_ir as ir

from opbridge.errors import InputError
from opbridge.onnx_model.scopes import all_nodes, scopes
from opbridge.onnx_model.structure import did_you_mean
from opbridge.surgery.dimensions import sizes_of, substituted, symbols_in
from opbridge.surgery.edited import (
    Change,
    Edited,
    find_value,
    finished,
    model_of,
    names_of_values,
    rename_value,
    values_of,
)

__all__ = ["rename"]


def rename(
    model: Any,
    values: Mapping[str, str] | None = None,
    *,
    nodes: Mapping[str, str] | None = None,
    dimensions: Mapping[str, str] | None = None,
    operators: Mapping[str, str] | None = None,
) -> Edited:
    """Rename parts of a model. Each argument maps old names to new names; names may be swapped.

    Args:
        model: A path, an ``ir.Model`` or a ``ModelProto``. It is not changed.
        values: New names of inputs, outputs, weights and outputs of nodes.
        nodes: New names of nodes.
        dimensions: New names of named dimensions.
        operators: New operators of custom nodes and of the functions that are their bodies, as ``"domain::Op"``.

    Raises:
        InputError: An old name does not exist, or a new name is taken.
    """
    own = model_of(model)
    changes = []
    if values:
        _check(values, names_of_values(own), "value")
        found = {find_value(own, old): new for old, new in values.items()}
        for number, value in enumerate(found):
            rename_value(value, f"\0{number}")
        for value, new in found.items():
            rename_value(value, new)
        changes += _changes("value", values)
    if nodes:
        everything = [node for node in own.graph.all_nodes() if node.name]
        _check(nodes, {str(node.name) for node in everything}, "node")
        for node in everything:
            node.name = nodes.get(str(node.name), node.name)
        changes += _changes("node", nodes)
    if dimensions:
        _rename_dimensions(own, dimensions)
        changes += _changes("dimension", dimensions)
    if operators:
        _rename_operators(own, operators)
        changes += _changes("operator", operators)
    return finished(model, own, changes)


def _changes(kind: str, names: Mapping[str, str]) -> list[Change]:
    return [Change(f"the {kind} {old!r} is now {new!r}") for old, new in names.items()]


def _check(names: Mapping[str, str], known: Collection[str], kind: str, valid: Callable[[str], Any] = bool) -> None:
    for old, new in names.items():
        if old not in known:
            raise InputError(f"The model has no {kind} {old!r}.", fix=did_you_mean(old, sorted(known)))
        if not valid(new):
            raise InputError(f"{new!r} is not a valid name of a {kind}.", fix="choose another name.")
        if (new in known and new not in names) or list(names.values()).count(new) > 1:
            raise InputError(f"The {kind} {old!r} can't become {new!r}: the name is taken.", fix="choose another name.")


def _rename_dimensions(model: ir.Model, names: Mapping[str, str]) -> None:
    values = list(values_of(model))
    known = {name for value in values for size in sizes_of(value) or () for name in symbols_in(size)}
    _check(names, known, "dimension", str.isidentifier)
    for value in values:
        sizes = sizes_of(value)
        if sizes and any(symbols_in(size) & set(names) for size in sizes):
            value.shape = ir.Shape([substituted(size, names) for size in sizes])


def _rename_operators(model: ir.Model, names: Mapping[str, str]) -> None:
    custom = [node for node in all_nodes(model) if node.domain]
    known = {f"{node.domain}::{node.op_type}" for node in custom}
    _check(names, known, "custom operator", lambda new: all(new.partition("::")))
    for key, function in list(model.functions.items()):
        new = names.get(f"{key[0]}::{key[1]}")
        if new is not None:
            del model.functions[key]
            function.domain, _, function.name = new.partition("::")
            model.functions[function.identifier()] = function
    for node in custom:
        new = names.get(f"{node.domain}::{node.op_type}")
        if new is not None:
            version = model.opset_imports.get(node.domain, 1)
            node.domain, _, node.op_type = new.partition("::")
            for scope in scopes(model):
                scope.opset_imports.setdefault(node.domain, version)
    left = {node.domain for node in all_nodes(model)} | {""}
    for scope in scopes(model):
        for domain in [domain for domain in scope.opset_imports if domain not in left]:
            del scope.opset_imports[domain]
