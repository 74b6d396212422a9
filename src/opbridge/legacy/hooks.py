"""The hooks by which this package takes part in capture, catalog, translation and findings."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from opbridge import findings
from opbridge.capture import hooks as capture_hooks
from opbridge.catalog.declare import catalog
from opbridge.ladder import hooks as ladder_hooks
from opbridge.legacy import switch

if TYPE_CHECKING:
    from opbridge.catalog.declare.spec import OpSpec

__all__ = ["install"]

_FINDINGS = "opbridge.legacy.findings"


def install() -> None:
    """Add the hooks of this package, once. This function does not import torch."""
    if _FINDINGS in findings.PACKAGES:
        return
    findings.PACKAGES.append(_FINDINGS)
    findings.modules.cache_clear()
    capture_hooks.AROUND.append(_around_capture)
    catalog.SOURCES.append(_registered_specs)
    ladder_hooks.AROUND_TRANSLATION.append(_around_translation)
    ladder_hooks.AROUND_MODEL.append(_around_model)


def _around_capture() -> AbstractContextManager[capture_hooks.Observer]:
    from opbridge.legacy.functions import bridging

    return bridging()


def _around_translation(program: Any, opset: int, requested_opset: int | None) -> AbstractContextManager[Any]:
    from opbridge.legacy.symbolic_call import splicing

    return splicing(program, opset, requested_opset)


def _around_model() -> AbstractContextManager[Any]:
    from opbridge.legacy.symbolic_call import counting

    return counting()


def _registered_specs() -> Iterable[OpSpec]:
    if not switch.is_on():
        return ()
    from opbridge.legacy.registrations import registered_specs
    from opbridge.legacy.rewriters import active_specs

    return (*registered_specs(), *active_specs())
