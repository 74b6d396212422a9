"""Everything known about an operator: its overloads, its mappings, and which mapping is used."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from opbridge.catalog.declare.catalog import Catalog
from opbridge.catalog.declare.spec import OpSpec
from opbridge.errors import InputError
from opbridge.records import Record
from opbridge.torch_graph.internals import mapped_targets

__all__ = ["KnownOperator", "Mapping", "list_mappings", "look_up"]


@dataclasses.dataclass(frozen=True)
class Mapping(Record):
    """One mapping of an operator.

    Attributes:
        target: ``"ns::name"`` or ``"ns::name.overload"``; for a rewrite the import path of a function.
        provider: ``"user"``, ``"catalog"`` or ``"torch"``.
        rung: The rung on the ladder.
        opset: The lowest opset that the mapping needs; None if torch does not state it.
        summary: The first sentence of the documentation.
        docstring: The documentation.
        source: ``file:line`` of the declaration, relative to the current folder or to the package's folder.
        overrides: The reason for replacing torch's own mapping.
    """

    target: str
    provider: str
    rung: str
    opset: int | None
    summary: str = ""
    docstring: str = ""
    source: str = ""
    overrides: str = ""


@dataclasses.dataclass(frozen=True)
class KnownOperator(Record):
    """Everything known about one operator.

    Attributes:
        target: ``"ns::name"``.
        overloads: The names of the overloads in torch; empty if torch does not know the operator.
        mappings: The operator's mappings; of two mappings for one overload, the first is used.
    """

    target: str
    overloads: tuple[str, ...]
    mappings: tuple[Mapping, ...]


def list_mappings(ops: Sequence[str | Path] = ()) -> tuple[Mapping, ...]:
    """All mappings of the user's level (including those in ``ops``) and of the catalog, the user's first."""
    catalog = Catalog.load(ops)
    return tuple(_declared(catalog, spec) for spec in catalog.specs)


def look_up(target: str, ops: Sequence[str | Path] = ()) -> KnownOperator:
    """Everything known about an operator, or about the function of a rewrite.

    Args:
        target: ``"aten::cummax"``, ``"cummax"``, ``"aten::cummax.default"``, or the import path of a function.
        ops: The user's operator files and folders.

    Raises:
        InputError: Neither torch nor any mapping has this name; the error suggests similar names.
    """
    catalog = Catalog.load(ops)
    name = _canonical(target, catalog.specs)
    bare, _, overload = name.partition(".") if "::" in name else (name, "", "")
    declared = [_declared(catalog, spec) for spec in catalog.specs if _concerns(spec.target, bare, overload)]
    overloads = _overloads(bare) if "::" in bare else ()
    mappings = (*declared, *_of_torch(bare, overload))
    if not mappings and not overloads:
        close = difflib.get_close_matches(bare, _known_names(catalog), n=3)
        raise InputError(
            f"There is no operator {target!r}, neither in torch nor in any mapping.",
            fix=f"did you mean {' or '.join(close)}?"
            if close
            else "write namespace::name; if the operator is your own, pass the folder that declares it with --ops.",
        )
    return KnownOperator(bare, overloads, mappings)


def _canonical(target: str, specs: Iterable[OpSpec]) -> str:
    if "::" in target:
        return target
    known = {spec.target for spec in specs}
    if target in known:
        return target
    parts = target.split(".")
    if parts[0] == "torch" and parts[1:2] == ["ops"] and len(parts) > 3:
        return f"{parts[2]}::{'.'.join(parts[3:])}"
    if len(parts) == 3 or (len(parts) == 2 and parts[0] in {"aten", "torchvision"}):
        return f"{parts[0]}::{'.'.join(parts[1:])}"
    named = [name for name in known if name.partition("::")[2] == target]
    return named[0] if len(named) == 1 else f"aten::{target}"


def _concerns(declared: str, bare: str, overload: str) -> bool:
    if "::" not in declared:
        return declared == bare
    name, _, its_overload = declared.partition(".")
    return name == bare and (not overload or its_overload in ("", overload))


def _declared(catalog: Catalog, spec: OpSpec) -> Mapping:
    return Mapping(
        spec.target,
        catalog.provider(spec),
        spec.rung,
        spec.opset,
        spec.summary,
        inspect.getdoc(spec.function) or "",
        _readable(spec.source),
        spec.overrides,
    )


def _of_torch(bare: str, overload: str) -> tuple[Mapping, ...]:
    found = sorted(
        (key, opset)
        for key, opset in mapped_targets().items()
        if isinstance(key, str) and _concerns(key, bare, overload)
    )
    return tuple(Mapping(key, "torch", "native", opset, "mapped by torch.onnx itself") for key, opset in found)


def _overloads(bare: str) -> tuple[str, ...]:
    import torch

    namespace, _, name = bare.partition("::")
    if namespace == "torchvision":
        _import_quietly("torchvision")
    try:
        return tuple(getattr(getattr(torch.ops, namespace), name).overloads())
    except (AttributeError, RuntimeError):
        return ()


def _import_quietly(module: str) -> None:
    """Import a package that registers operators with torch, if it is installed."""
    import contextlib
    import importlib

    with contextlib.suppress(ImportError):
        importlib.import_module(module)


def _known_names(catalog: Catalog) -> list[str]:
    import torch

    of_torch = {key.partition(".")[0] for key in mapped_targets() if isinstance(key, str)}
    aten = {f"aten::{name}" for name in dir(torch) if not name.startswith("_")}
    return sorted(of_torch | aten | {spec.target for spec in catalog.specs})


def _readable(source: str) -> str:
    file, separator, line = source.rpartition(":")
    path = Path(file)
    for folder in (Path.cwd(), Path(__file__).parents[3], *map(Path, sys.path)):
        if path.is_relative_to(folder) and str(folder) != ".":
            return f"{path.relative_to(folder).as_posix()}{separator}{line}"
    return source
