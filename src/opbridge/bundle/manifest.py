"""What a bundle says of itself: the manifest, and the side file with what depends on the machine."""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from opbridge.capture.entry import entry_file, portable_entry
from opbridge.engines.base import Engine, TensorSpec
from opbridge.engines.probe import probe
from opbridge.ladder.findings import list_findings

if TYPE_CHECKING:
    import onnx_ir as ir

    from opbridge.capture.capture import Captured
    from opbridge.ladder.build import Built
    from opbridge.ladder.climb_onnx import ClimbedModel
    from opbridge.ladder.climb_torch import ClimbedProgram
    from opbridge.ladder.climbed import Climbed
    from opbridge.ladder.step import Step

__all__ = ["MODEL", "distinct_models", "make_manifest", "make_model_manifest", "make_sources"]

MODEL = "model.onnx"


def distinct_models(climbed: Climbed | ClimbedModel) -> dict[str, tuple[list[str], ir.Model]]:
    """One file per distinct need: engines for which the same was adapted share one."""
    needs: dict[Any, tuple[list[str], ir.Model]] = {}
    for name, model in climbed.models.items():
        need = (climbed.adaptations[name], model.opset_imports.get(""), model.ir_version)
        needs.setdefault(need, ([], model))[0].append(name)
    files: dict[str, tuple[list[str], ir.Model]] = {}
    for (adaptations, *_), (names, model) in needs.items():
        plain = len(needs) == 1 or (not adaptations and MODEL not in files)
        # The name of a version, "onnxruntime==1.16.3", is no good name of a file everywhere.
        files[MODEL if plain else f"model.{names[0].replace('==', '-')}.onnx"] = (names, model)
    return files


def make_manifest(
    entry: str,
    captured: Captured,
    climbed: Climbed | None,
    engines: Sequence[Engine],
    weights: Mapping[str, Any],
    programs: Mapping[str, tuple[str, ClimbedProgram]] = MappingProxyType({}),
) -> dict[str, Any]:
    """The manifest, without what :func:`~opbridge.bundle.bundle.write_bundle` adds. It holds no path of this machine.

    Args:
        entry: As the user wrote it.
        captured: The model.
        climbed: Where the ladder ended for the engines that load ONNX; None without such an engine.
        engines: All engines.
        weights: The hashes of the model's weights, see :func:`opbridge.torch_graph.weights.hashed_weights`.
        programs: By the name of an engine that takes a torch program: its file, and where its ladder ended.
    """
    described = _described_programs(programs)
    if climbed is not None:
        onnx = _described(climbed, engines, climbed.plan.steps, climbed.plan.opset_reason)
        described = {
            **onnx,
            "models": [*onnx["models"], *described["models"]],
            "adaptations": {**onnx["adaptations"], **described["adaptations"]},
            "kernels": [*onnx["kernels"], *described["kernels"]],
        }
    return {
        "entry": portable_entry(entry) if entry else None,
        "versions": _versions(engines, ("torch", "torchvision")),
        **described,
        "dynamic": _dynamic(captured),
        **weights,
    }


def _described_programs(programs: Mapping[str, tuple[str, ClimbedProgram]]) -> dict[str, Any]:
    """What is said of the models of the engines that take a torch program."""
    found = [climbed for _, climbed in programs.values()]
    first = found[0] if found else None
    mended = {
        name: [
            {"what": f"{item.target.removesuffix('.default')} is decomposed: {item.reason}", "nodes": []}
            for item in climbed.breaks
        ]
        for name, (_, climbed) in programs.items()
    }
    return {
        "models": [
            {"file": file, "engines": [name], "opset": None, "ir_version": None} for name, (file, _) in programs.items()
        ],
        "inputs": [spec.to_dict() for spec in first.program.inputs] if first is not None else [],
        "outputs": [spec.to_dict() for spec in first.program.outputs] if first is not None else [],
        "operators": [step.to_dict() for step in first.steps] if first is not None else [],
        "adaptations": mended,
        "kernels": [{**climbed.built.to_dict(), "optional": False} for climbed in found if climbed.built is not None],
        "opset_reason": "",
    }


def make_model_manifest(entry: str, climbed: ClimbedModel, engines: Sequence[Engine], original: str) -> dict[str, Any]:
    """The manifest of a bundle that was made of an ONNX model: the same, with that model's hash.

    Args:
        entry: The model's file; empty for a model in memory.
        climbed: Where the ladder ended.
        engines: The engines.
        original: The hash of the model that was given.
    """
    described = _described(climbed, engines, climbed.steps, climbed.opset_reason)
    names = [size for spec in described["inputs"] for size in spec["shape"] if isinstance(size, str)]
    return {
        "entry": portable_entry(entry) if entry else None,
        "versions": _versions(engines, ("torch",) if climbed.bodied else ()),
        **described,
        "dynamic": {name: [1, None] for name in sorted(set(names))},
        "weights": None,
        "original": {"sha256": original},
    }


def _described(
    climbed: Climbed | ClimbedModel, engines: Sequence[Engine], steps: Sequence[Step], opset_reason: str
) -> dict[str, Any]:
    models = distinct_models(climbed)
    first = next(iter(models.values()))[1]
    inputs = [value for value in first.graph.inputs if value.name not in first.graph.initializers]
    return {
        "models": [
            {"file": file, "engines": names, "opset": model.opset_imports.get("", 1), "ir_version": model.ir_version}
            for file, (names, model) in models.items()
        ],
        "inputs": [_tensor_spec(value).to_dict() for value in inputs],
        "outputs": [_tensor_spec(value).to_dict() for value in first.graph.outputs],
        "operators": [step.to_dict() for step in steps],
        "adaptations": {name: [item.to_dict() for item in items] for name, items in climbed.adaptations.items()},
        "kernels": [
            _kernels(engine, climbed.built[engine.name], climbed) for engine in engines if engine.name in climbed.built
        ],
        "opset_reason": opset_reason,
    }


def _kernels(engine: Engine, built: Built, climbed: Climbed | ClimbedModel) -> dict[str, Any]:
    """What is said of a library of kernels; it is optional where the engine runs the function bodies instead."""
    return {**built.to_dict(), "optional": not probe(climbed.models[engine.name], engine)}


def _tensor_spec(value: ir.Value) -> TensorSpec:
    import onnx_ir as ir

    dtype = "str" if value.dtype is ir.DataType.STRING else str((value.dtype or ir.DataType.FLOAT).numpy())
    shape = tuple(
        size if isinstance(size, int) else size.value or f"{value.name}.{axis}"
        for axis, size in enumerate(value.shape or ())
    )
    return TensorSpec(str(value.name), dtype, shape)


def _dynamic(captured: Captured) -> dict[str, list[int | None]]:
    """The range of each dynamic dimension."""
    ranges: dict[str, list[int | None]] = {}
    for symbol, interval in captured.program.range_constraints.items():
        name = captured.dimension_names.get(str(symbol), str(symbol))
        # Torch writes "no limit" as one of its own infinities, or as a size no tensor has.
        lower = int(interval.lower) if interval.lower > 0 else 0
        ranges[name] = [lower, int(interval.upper) if interval.upper < 2**31 else None]
    return dict(sorted(ranges.items()))


def _versions(engines: Sequence[Engine], packages: Sequence[str]) -> dict[str, str]:
    found = {}
    for package in (*packages, "onnx", "onnx-ir", "onnxscript"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return {**found, **{engine.name: engine.version for engine in engines}}


def make_sources(
    entry: str,
    captured: Captured,
    climbed: Climbed | None,
    engines: Sequence[Engine],
    programs: Sequence[ClimbedProgram] = (),
) -> dict[str, Any]:
    """The side file: where entry, nodes and operators are in the user's source, which values are whose, findings."""
    versions = {engine.name: engine.version for engine in engines}
    file = entry_file(entry) if entry else None
    steps = climbed.plan.steps if climbed is not None else programs[0].steps
    return {
        "entry_path": str(file) if file else None,
        "nodes": dict(climbed.translated.sources) if climbed is not None else {},
        "targets": dict(climbed.translated.targets) if climbed is not None else {},
        "captured": dict(climbed.translated.captured) if climbed is not None else {},
        "values": {name: origin.to_json() for name, origin in climbed.translated.origins.items()} if climbed else {},
        "operators": {step.target: list(step.sources) for step in steps},
        "findings": [finding.to_dict() for finding in list_findings(captured, climbed, versions, programs)],
    }
