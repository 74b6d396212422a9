"""The planted faults and the ill-conditioned models of the tests, through opbridge.verify and through other checks."""

from __future__ import annotations

import dataclasses
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import opbridge
from opbridge.bundle.bundle import Bundle
from opbridge.capture.entry import Entry
from opbridge.proof.verify.verification import Verification

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from other_checks import passes_allclose, passes_torch_verification
from planted_faults import FAULTS, MODES, Fault, faulty_bundle, named_node
from sound_models import AT_THE_EDGES, OTHERWISE_BY_DESIGN, SOUND, long_sum

__all__ = ["Row", "faults", "markdown", "sound_models"]

ALLCLOSE = {"rtol": 1e-3, "atol": 1e-8}
LARGEST_SUM = 100_000_000
DETECTED = 0.9
"""The least share of verifications that must find a kernel that is wrong in a quarter of its runs."""


@dataclasses.dataclass(frozen=True)
class Row:
    """A fault, or a sound model.

    Attributes:
        name: What is wrong; for a sound model what makes it ill-conditioned.
        mode: The inputs.
        faulty: Whether it is a fault.
        caught: The share of opbridge's verifications that did not pass.
        node: What bisection says of the planted node; empty for a sound model.
        due: What it must say.
        torch_verification: Whether torch.onnx.verification reports a difference.
        allclose: Whether numpy.allclose(rtol=1e-3) fails on the example inputs.
        allclose_here: Whether it fails on the inputs that opbridge made.
        further: What opbridge says of a sound model in its other modes: "passes", "false alarm", or "differs" where the
            engine does differ there.
    """

    name: str
    mode: str
    faulty: bool
    caught: float
    node: str
    due: str
    torch_verification: bool
    allclose: bool
    allclose_here: bool
    further: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def holds(self) -> bool:
        if not self.faulty:
            return self.caught == 0 and "false alarm" not in self.further.values()
        return self.node == self.due and self.caught >= (DETECTED if self.due == "not deterministic" else 1)


def faults(runs: int, only: str = "") -> Iterator[Row]:
    """Every fault whose name contains ``only``. One that is not deterministic is verified ``runs`` times."""
    for fault in FAULTS:
        if only in fault.name:
            with tempfile.TemporaryDirectory() as folder:
                bundle, entry, nodes = faulty_bundle(fault, Path(folder) / "bundle")
                yield _fault_row(fault, bundle, entry, nodes, runs)


def _fault_row(fault: Fault, bundle: Bundle, entry: Entry, nodes: tuple[str, ...], runs: int) -> Row:
    times = 1 if fault.deterministic else runs
    found = [_verify(bundle, entry, **fault.options) for _ in range(times)]
    if "special_values" in fault.options:
        # What opbridge says of special values does not depend on a tolerance.
        allclose_here = passes_allclose(bundle, entry, special=True)
    else:
        allclose_here = _verify(bundle, entry, **fault.options, **ALLCLOSE).passed
    node = next((named_node(result, nodes) for result in found if not result.passed), "")
    return Row(
        fault.name,
        fault.mode,
        True,
        sum(not result.passed for result in found) / times,
        node,
        fault.said,
        not passes_torch_verification(bundle, entry),
        not passes_allclose(bundle, entry),
        not allclose_here,
    )


def sound_models(only: str = "") -> Iterator[Row]:
    """Every ill-conditioned model whose name contains ``only``."""
    for name, make in {**SOUND, "a sum of 1e8 terms": lambda: long_sum(LARGEST_SUM)}.items():
        if only not in name:
            continue
        entry = make()
        # Other sizes of 400 MB each would only take time.
        large = name not in SOUND
        shapes = None if large else entry.dynamic_shapes
        entry = dataclasses.replace(entry, dynamic_shapes=shapes)
        with tempfile.TemporaryDirectory() as folder:
            bundle = opbridge.export(
                entry.model, entry.args, path=Path(folder) / "bundle", dynamic_shapes=shapes, verify=False, nan="exact"
            )
            yield Row(
                name,
                "example sizes" if large else "default",
                False,
                float(not _verify(bundle, entry).passed),
                "",
                "",
                not passes_torch_verification(bundle, entry),
                not passes_allclose(bundle, entry),
                not _verify(bundle, entry, **ALLCLOSE).passed,
                {} if large else _further(name, bundle, entry),
            )


def _further(name: str, bundle: Bundle, entry: Entry) -> dict[str, str]:
    """What is said of a sound model at the edges, and at special values that are required to come out as in PyTorch."""
    found = {}
    for mode in ("edge sizes", "special values"):
        if mode == "edge sizes" and AT_THE_EDGES[name] is not SOUND[name]:
            passed = _verified_anew(AT_THE_EDGES[name](), **MODES[mode])
        else:
            passed = _verify(bundle, entry, **MODES[mode]).passed
        known = mode == "special values" and name in OTHERWISE_BY_DESIGN
        found[mode] = "passes" if passed else "differs" if known else "false alarm"
    return found


def _verified_anew(entry: Entry, **options: Any) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        shapes = entry.dynamic_shapes
        bundle = opbridge.export(
            entry.model, entry.args, path=Path(folder) / "bundle", dynamic_shapes=shapes, verify=False, nan="exact"
        )
        return _verify(bundle, entry, **options).passed


def _verify(bundle: Bundle, entry: Entry, **options: Any) -> Verification:
    return opbridge.verify(bundle.path, reference=entry, **options)


def markdown(rows: list[Row]) -> list[str]:
    """The rows as the tables of docs/verification.md."""
    checks = "torch.onnx.verification | allclose | allclose, opbridge's inputs"
    lines = [f"| fault | inputs | opbridge | the node | {checks} |", "|---|---|---|---|---|---|---|"]
    lines += [
        f"| {row.name} | {row.mode} | {_share(row)} | {row.node or '-'} | {_others(row, 'caught', 'missed')} |"
        for row in rows
        if row.faulty
    ]
    lines += [
        "",
        f"| sound model | opbridge | edge sizes | special values | {checks} |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.name} | {'false alarm' if row.caught else 'passes'} | {_in_modes(row)} "
        f"| {_others(row, 'false alarm', 'passes')} |"
        for row in rows
        if not row.faulty
    ]
    return [*lines, "", *totals(rows)]


def _share(row: Row) -> str:
    return {0.0: "missed", 1.0: "caught"}.get(row.caught, f"caught in {row.caught:.0%}")


def _in_modes(row: Row) -> str:
    return " | ".join(row.further.get(mode, "-") for mode in ("edge sizes", "special values"))


def _others(row: Row, yes: str, no: str) -> str:
    return " | ".join(yes if item else no for item in (row.torch_verification, row.allclose, row.allclose_here))


def totals(rows: list[Row]) -> list[str]:
    """How many each check caught and missed, and how many sound models it called wrong."""
    planted, sound = [row for row in rows if row.faulty], [row for row in rows if not row.faulty]
    checks = {
        "opbridge": lambda row: row.caught > 0 or "false alarm" in row.further.values(),
        "torch.onnx.verification": lambda row: row.torch_verification,
        "allclose": lambda row: row.allclose,
        "allclose, opbridge's inputs": lambda row: row.allclose_here,
    }
    lines = ["| check | caught | missed | false alarms |", "|---|---|---|---|"]
    for name, says in checks.items():
        caught, alarms = sum(map(says, planted)), sum(map(says, sound))
        lines.append(f"| {name} | {caught} of {len(planted)} | {len(planted) - caught} | {alarms} of {len(sound)} |")
    return lines
