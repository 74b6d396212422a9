"""PyTorch's operator database: each task checks the samples of one entry, as ``opbridge conformance`` does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["PACKAGE", "build", "names", "run"]

PACKAGE = ""


def names() -> list[str]:
    """The entries of the database."""
    from opbridge.proof.conformance.database import named

    return named(())


def build(name: str) -> Any:
    """An entry is no model; :func:`run` checks it."""
    raise AssertionError(name)


def run(name: str, exporter: str, engine: str) -> Mapping[str, Any]:
    """Check the samples of an entry in its first element type; returns the fields of the row."""
    from opbridge.proof.conformance.applicability import NOT_APPLICABLE
    from opbridge.proof.conformance.database import dtypes_of
    from opbridge.proof.conformance.pool import Tally
    from opbridge.proof.conformance.results import Way
    from opbridge.proof.conformance.run import result_of
    from opbridge.proof.conformance.worker import check_entry
    from opbridge.sweep.causes import general

    if name in NOT_APPLICABLE:
        return {"status": "not applicable", "error": NOT_APPLICABLE[name]}
    way = Way(exporter, engine)
    request = {"entry": name, "dtype": (dtypes_of(name) or ["float32"])[0], "way": way.to_dict()}
    tally = Tally()

    def note(message: Mapping[str, Any]) -> None:
        tally.note(message)

    check_entry({**request, "done": [], "failures": 0, "alone": []}, note)
    result = result_of(request, tally, way, {})
    failed = result.status not in ("pass", "not applicable")
    return {
        "status": result.status,
        "causes": [general(result.error)] if failed else [],
        "error": f"{result.sample}: {result.error}" if result.sample else result.error,
        "stage": result.status if failed else "",
        "rungs": dict(result.rungs),
        "seconds": dict(result.seconds),
        "cases": result.counts.get("pass", 0),
    }
