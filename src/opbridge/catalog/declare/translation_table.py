"""Mappings to ONNX in the form that plain ``torch.onnx.export`` takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from opbridge.catalog.declare.catalog import Catalog
from opbridge.errors import InputError

__all__ = ["translation_table"]


def translation_table(
    ops: Sequence[str | Path | ModuleType | Callable[..., Any]] = (),
) -> dict[Callable[..., Any], Callable[..., Any]]:
    """The user's translations, for ``torch.onnx.export(..., custom_translation_table=opbridge.translation_table())``.

    ``opbridge.export`` needs no table. Here is the way for a script that is to keep its call of ``torch.onnx.export``,
    which knows nothing of rewrites, decompositions, bodies, kernels and engines.

    Args:
        ops: Operator files, directories, modules or decorated functions besides the declarations so far.

    Returns:
        The function for each functional overload. A bare name (``"aten::add"``) stands for all of them, an overload
        (``"aten::add.Tensor"``) wins.

    Raises:
        InputError: A translation's operator does not exist.
    """
    table: dict[Callable[..., Any], Callable[..., Any]] = {}
    specs = [spec for spec in Catalog.load(ops).user if spec.rung == "translate"]
    for spec in sorted(specs, key=lambda spec: "." in spec.target):
        table.update(dict.fromkeys(_overloads(spec.target, spec.source), spec.function))
    return table


def _overloads(target: str, source: str) -> list[Callable[..., Any]]:
    import torch

    name, _, wanted = target.partition(".")
    namespace, _, operator = name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), operator, None)
    names = [] if packet is None else packet.overloads()
    if packet is None or (wanted and wanted not in names):
        raise InputError(
            f"translation_table: torch has no operator {target!r}, which the translation at {source} is for.",
            fix="import the library that registers it before, or check the spelling.",
        )
    if wanted:
        return [getattr(packet, wanted)]
    found = [getattr(packet, overload) for overload in names]
    return [one for one in found if not one._schema.is_mutable and "Dimname" not in str(one._schema)]
