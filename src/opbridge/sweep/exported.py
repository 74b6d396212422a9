"""Exports a model with opbridge, or with the plain torch.onnx, and verifies it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from opbridge.capture.capture import Captured, capture
from opbridge.capture.entry import Entry
from opbridge.catalog.declare.catalog import Catalog
from opbridge.catalog.declare.nan import ABSENT
from opbridge.catalog.declare.operator import without_kernels
from opbridge.engines import chosen
from opbridge.engines.base import TensorSpec
from opbridge.engines.feeds import checked_feeds
from opbridge.engines.process.isolation import IsolatedSession
from opbridge.errors import OpbridgeError
from opbridge.proof.conformance.check import Positional
from opbridge.proof.conformance.exporters import Failure, export_with_torch
from opbridge.proof.verify.inputs import to_numpy
from opbridge.proof.verify.options import VerifyOptions
from opbridge.proof.verify.reference_captured import CapturedReference
from opbridge.proof.verify.verify import verify
from opbridge.torch_graph.dimensions import arguments_by_name, declared_sizes
from opbridge.torch_graph.silence import silenced
from opbridge.verbs.export import export

__all__ = ["EXPORTERS", "Exported", "median_run"]

_MEASURED_SECONDS = 0.5
_PLAIN = frozenset({"native", "opset"})

Report = Callable[[str], None]
"""Receives the name of each stage as it begins."""


@dataclasses.dataclass(frozen=True)
class Exported:
    """A model that was exported and verified.

    Attributes:
        verification: The verification as JSON data.
        seconds: The time of "export", which includes the capture, and of "verify".
        file: The model file for the engine.
        libraries: The libraries of kernels that it is loaded with.
        rungs: The rung of each operator that torch.onnx has no mapping for.
    """

    verification: Mapping[str, Any]
    seconds: Mapping[str, float]
    file: Path
    libraries: tuple[Path, ...] = ()
    rungs: Mapping[str, str] = dataclasses.field(default_factory=dict)


def by_opbridge(model: Entry | Path, engine: str, folder: Path, report: Report) -> Exported:
    """Export with :func:`opbridge.export` in its default settings."""
    started = time.perf_counter()
    what: dict[str, Any] = {"model": str(model)}
    if isinstance(model, Entry):
        names = ("model", "args", "kwargs", "dynamic_shapes", "input_names", "output_names", "state")
        what = {name: getattr(model, name) for name in names}
    bundle = export(**what, path=folder / "bundle", engines=(engine,), progress=report)
    total = time.perf_counter() - started
    assert bundle.verification is not None
    verified = sum(bundle.verification["seconds"].values())
    _, libraries = bundle.runs(engine)[0]
    return Exported(
        bundle.verification,
        {"export": total - verified, "verify": verified},
        bundle.loadable(*chosen([engine], lambda stage: None)),
        libraries,
        {item["target"]: item["rung"] for item in bundle.manifest["operators"] if item["rung"] not in _PLAIN},
    )


def by_torch(model: Entry | Path, engine: str, folder: Path, report: Report) -> Exported:
    """Export with the plain ``torch.onnx.export``, and verify the model as opbridge verifies its own."""
    assert isinstance(model, Entry)
    file = folder / "model.onnx"
    report("exporting")
    started = time.perf_counter()
    program = export_with_torch(model.model, model.args, model.kwargs, model.dynamic_shapes, file)
    exported = time.perf_counter()
    _refuse_fixed_sizes(model, program)
    report("verifying")
    captured = _reference(model, program)
    with IsolatedSession(engine, file) as session, without_kernels(), silenced():
        options = VerifyOptions(nan=ABSENT)
        found = verify(CapturedReference(captured), Positional(session, captured), engine=engine, options=options)
    seconds = {"export": exported - started, "verify": time.perf_counter() - exported}
    return Exported(found.to_dict(), seconds, file)


def _refuse_fixed_sizes(model: Entry, program: torch.onnx.ONNXProgram) -> None:
    """Raise Failure if a size with a named ``Dim`` is a number in the model, which torch.onnx accepts silently."""
    assert program.exported_program is not None
    arguments = arguments_by_name(model.model, model.args, model.kwargs)
    declared = declared_sizes(program.exported_program, model.dynamic_shapes, arguments)
    if any(isinstance(size, int) and isinstance(dimension, torch.export.Dim) for _, size, dimension in declared):
        raise Failure("capture", "torch.onnx fixes a size that is declared dynamic")


def _reference(model: Entry, program: torch.onnx.ONNXProgram) -> Captured:
    """The model as opbridge captures it; as torch.onnx has captured it where opbridge can't."""
    catalog = Catalog.load(nan=ABSENT)
    try:
        return capture(
            model.model, model.args, model.kwargs, dynamic_shapes=model.dynamic_shapes, rewrites=catalog.rewrites()
        )
    except OpbridgeError:
        assert program.exported_program is not None
        return capture(program.exported_program)


EXPORTERS: Mapping[str, Callable[[Entry | Path, str, Path, Report], Exported]] = {
    "opbridge": by_opbridge,
    "torch": by_torch,
}


def median_run(exported: Exported, model: Entry, engine: str) -> float | None:
    """The median time of a run in the engine with one thread, in seconds; None if the inputs can't be assigned."""
    with IsolatedSession(engine, exported.file, 1, libraries=exported.libraries) as session:
        feeds = _feeds(model, session.inputs)
        if feeds is None:
            return None
        session.measure(feeds, 0.0)
        return float(np.median(session.measure(feeds, _MEASURED_SECONDS)["seconds"]))


def _feeds(model: Entry, specs: tuple[TensorSpec, ...]) -> dict[str, np.ndarray] | None:
    """The example inputs by the names of the ONNX model's inputs: keywords by name, and the others in order."""
    named = {key: value for key, value in model.kwargs.items() if isinstance(value, torch.Tensor)}
    leaves = torch.utils._pytree.tree_leaves((model.args, dict(model.kwargs)))
    others = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and not any(leaf is n for n in named.values())]
    feeds: dict[str, np.ndarray] = {}
    for spec in specs:
        value = named.pop(spec.name, None)
        if value is None and not others:
            return None
        feeds[spec.name] = to_numpy(others.pop(0) if value is None else value)
    try:
        return checked_feeds(specs, feeds)
    except OpbridgeError:
        return None
