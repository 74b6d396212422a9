"""The user's translations in the form that ``torch.onnx.export`` accepts."""

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

    ``opbridge.export`` does not need this table. It is for scripts that keep their call of ``torch.onnx.export``, which
    does not support rewrites, decompositions, bodies, kernels and engines.

    Args:
        ops: Operator files, folders, modules or decorated functions, in addition to the declarations so far.

    Returns:
        The function of each functional overload. A bare name (``"aten::add"``) stands for all functional overloads; a
        declaration for one overload (``"aten::add.Tensor"``) takes precedence.

    Raises:
        InputError: The operator of a translation does not exist.
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
            f"translation_table: torch has no operator {target!r}, the target of the translation at {source}.",
            fix="first import the library that registers it, or check the spelling.",
        )
    if wanted:
        return [getattr(packet, wanted)]
    found = [getattr(packet, overload) for overload in names]
    return [one for one in found if not one._schema.is_mutable and "Dimname" not in str(one._schema)]
