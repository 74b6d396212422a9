"""Bring a model to the opset and the IR version for an engine: the first step of ``adapt``."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import onnx

from opbridge.engines.base import IR_VERSION, Engine, Refusal, RefusalKind
from opbridge.errors import InputError
from opbridge.onnx_model.adaptation import Adaptation
from opbridge.onnx_model.names import KEPT_DOMAIN
from opbridge.onnx_model.opsets import NEWEST_OPSET, OLDEST_OPSET, convert_opset
from opbridge.onnx_model.scopes import all_nodes

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = [
    "LOWEST",
    "ORIGIN",
    "SYMBOLIC",
    "Versions",
    "WithVersions",
    "bring_to_versions",
    "check_versions",
    "forget_origins",
    "ir_version_for",
    "lowest_ir_version",
]

LOWEST = "lowest"
"""The text that requests the lowest opset that supports every operator."""

_WITH_FUNCTIONS = 8
"""The first IR version with model-local functions."""


@dataclasses.dataclass(frozen=True)
class Versions:
    """The versions that the user requests; None leaves the choice to the model and the engine.

    Attributes:
        opset: The version of the standard domain.
        ir_version: The version of the ONNX IR.
        lowest: Whether a PyTorch model gets the lowest opset that supports every operator, although a newer one, that
            every served version of the engine takes, has a faster operator.
    """

    opset: int | None = None
    ir_version: int | None = None
    lowest: bool = False

    @classmethod
    def of(cls, opset: int | str | None, ir_version: int | None = None) -> Versions:
        """The versions for the arguments of a verb; the opset may also be "lowest".

        Raises:
            InputError: The opset is another text.
        """
        if isinstance(opset, str):
            if opset != LOWEST:
                raise InputError(f"opset={opset!r} is not valid.", fix=f"pass an integer or {LOWEST!r}.")
            return cls(None, ir_version, lowest=True)
        return cls(opset, ir_version)


@dataclasses.dataclass(frozen=True)
class WithVersions:
    """A model in the opset and the IR version that an engine reads.

    Attributes:
        model: The model; the given one if it had these versions already.
        adaptations: The changes.
        refusals: The nodes that the opset can't express.
    """

    model: ir.Model
    adaptations: tuple[Adaptation, ...] = ()
    refusals: tuple[Refusal, ...] = ()


def check_versions(engines: Sequence[Engine], requested: Versions, *, own_opset: int | None = None) -> None:
    """Check the requested versions before any work is done.

    Args:
        engines: The engines.
        requested: The requested versions.
        own_opset: The opset of an ONNX model, which it keeps if no other is requested; None for a PyTorch model.

    Raises:
        InputError: A requested version can't be written, or an engine does not take it.
    """
    opset, ir_version = requested.opset, requested.ir_version
    engines = [engine for engine in engines if engine.accepts == "onnx"]
    if opset is not None and opset < OLDEST_OPSET:
        raise InputError(
            f"Opset {opset} can't be written: {OLDEST_OPSET} is the oldest.",
            fix=f"ask for opset {OLDEST_OPSET} or newer, or leave it out for the lowest that supports the model.",
        )
    for engine in engines:
        if opset is not None and opset > engine.newest_opset:
            raise InputError(
                f"Opset {opset} is newer than {engine.newest_opset}, the newest that {engine.name} {engine.version} "
                "takes.",
                fix=f"ask for opset {engine.newest_opset} or older, or install a newer {engine.name}.",
            )
        if ir_version is not None and ir_version > engine.newest_ir_version:
            raise InputError(
                f"ONNX IR version {ir_version} is newer than {engine.newest_ir_version}, the newest that {engine.name} "
                f"{engine.version} reads.",
                fix=f"ask for {engine.newest_ir_version} or older, or leave it out.",
            )
    if opset is not None and opset > NEWEST_OPSET:
        raise InputError(
            f"Opset {opset} is newer than {NEWEST_OPSET}, the newest that onnx {onnx.__version__} knows.",
            fix=f"ask for opset {NEWEST_OPSET} or older, or install a newer onnx.",
        )
    kept = None if own_opset is None else min([own_opset, *(engine.newest_opset for engine in engines)])
    _check_ir_version(opset or kept or _LOWEST_BY_DEFAULT, ir_version)


def _check_ir_version(opset: int, ir_version: int | None) -> None:
    if ir_version is None:
        return
    lowest = lowest_ir_version(opset)
    newest = int(onnx.IR_VERSION)
    if not lowest <= ir_version <= newest:
        raise InputError(
            f"ONNX IR version {ir_version} can't be written: opset {opset} needs at least {lowest}.",
            fix=f"ask for one from {lowest} to {newest}, or leave it out.",
        )


_LOWEST_BY_DEFAULT = 18


def lowest_ir_version(opset: int) -> int:
    """The IR version of the first ONNX release with this opset, which every engine that takes the opset reads.

    From opset 18 on, the result is the first IR version with model-local functions, which is enough for any model.
    """
    if opset >= _LOWEST_BY_DEFAULT:
        return _WITH_FUNCTIONS
    return int(onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", opset)]))


def ir_version_for(engine: Engine, opset: int, requested: Versions, *, functions: bool = False) -> int:
    """The IR version of a model of an opset for an engine.

    Args:
        engine: The engine that will read the model.
        opset: The opset of the model.
        requested: The requested versions, which take precedence.
        functions: Whether the model must keep its functions, because some of its nodes have kernels.
    """
    if requested.ir_version is not None:
        return requested.ir_version
    own = IR_VERSION if opset >= _LOWEST_BY_DEFAULT else lowest_ir_version(opset)
    return min(max(own, _WITH_FUNCTIONS) if functions else own, engine.newest_ir_version)


def bring_to_versions(
    model: ir.Model, engine: Engine, requested: Versions, *, opset: int | None = None, kernels: Collection[str] = ()
) -> WithVersions:
    """Bring a model to the requested opset, or to the newest one that the engine takes if that is lower.

    Args:
        model: The model, which is not changed.
        engine: The engine that will read the model.
        requested: The requested versions.
        opset: The opset to try if none is requested; by default the model's own.
        kernels: ``"domain::Op"`` of the nodes with kernels, which must stay nodes.
    """
    own = model.opset_imports.get("", model.opset_imports.get("ai.onnx"))
    if own is None:
        return WithVersions(model)
    target = requested.opset or min(opset or own, engine.newest_opset)
    version = ir_version_for(engine, target, requested, functions=bool(kernels))
    if opset is None and target == own and requested.ir_version is None:
        version = min(model.ir_version, engine.newest_ir_version)
    if target == own and (version == model.ir_version or version >= _WITH_FUNCTIONS):
        return _with_ir_version(model, version)
    _name_origins(model)
    converted = convert_opset(model, target, ir_version=version)
    change = (
        Adaptation(f"opset {own} becomes {target}", (), opset=target)
        if target != own
        else Adaptation(f"IR version {model.ir_version} becomes {version}", ())
    )
    return WithVersions(
        converted.model,
        (change, *converted.changes),
        tuple(
            Refusal(
                item.node,
                item.operator,
                f"opset {target} can't express it: {item.reason}",
                opset=target,
                kind=RefusalKind.OPSET,
            )
            for item in converted.unexpressed
        ),
    )


def _with_ir_version(model: ir.Model, version: int) -> WithVersions:
    if version == model.ir_version:
        return WithVersions(model)
    changed = model.clone()
    changed.ir_version = version
    return WithVersions(changed, (Adaptation(f"IR version {model.ir_version} becomes {version}", ()),))


ORIGIN = "opbridge.origin"
"""The metadata key of a node that a conversion made; its value is the name of the node that it replaces."""


def _name_origins(model: ir.Model) -> None:
    for node in model.graph.all_nodes():
        if node.name:
            node.metadata_props[ORIGIN] = node.name


SYMBOLIC = "opbridge.symbolic"
"""The metadata key of a node that a symbolic function of the user added: it stays as it was written, if it can run.

The value is the opset for which it was written if the node has the same form in the opset of the translation.
"""


def forget_origins(model: ir.Model) -> None:
    """Remove the metadata :data:`ORIGIN` and :data:`SYMBOLIC` from a model, and the domain of kept nodes."""
    model.opset_imports.pop(KEPT_DOMAIN, None)
    for node in all_nodes(model):
        node.metadata_props.pop(ORIGIN, None)
        node.metadata_props.pop(SYMBOLIC, None)
        if node.domain == KEPT_DOMAIN:
            node.domain = ""
