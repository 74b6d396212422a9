"""The content of a bundle's manifest, and of the side file with machine-dependent data."""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opbridge.bundle.graph import graph_rows
from opbridge.bundle.model_files import distinct_models
from opbridge.capture.entry import portable_entry
from opbridge.engines.base import Engine, TensorSpec

if TYPE_CHECKING:
    import onnx_ir as ir

    from opbridge.findings.base import Finding
    from opbridge.ladder.climbed import ClimbedAll

__all__ = ["make_manifest", "make_sources"]


def make_manifest(
    entry: str,
    climbed: ClimbedAll,
    engines: Sequence[Engine],
    converted: Mapping[str, str],
    packages: Sequence[str],
    facts: Mapping[str, Any],
) -> dict[str, Any]:
    """The manifest, without absolute paths and the entries that :func:`~opbridge.bundle.write.write_bundle` adds.

    Args:
        entry: The entry or the ONNX file as the user wrote it; empty for a model in memory.
        climbed: The result of the ladder.
        engines: All engines.
        converted: The main file of each engine that takes a torch program, by the engine's name.
        packages: The packages whose versions are recorded, in addition to those of ONNX and the engines.
        facts: The entries of the source: the hashes of its weights or of the model, and its dynamic dimensions.
    """
    programs = climbed.programs
    models = distinct_models(climbed.onnx) if climbed.onnx is not None else {}
    inputs, outputs = _interface(climbed)
    return {
        "entry": portable_entry(entry) if entry else None,
        "versions": _versions(engines, packages),
        "models": [
            *(
                {
                    "file": file,
                    "engines": names,
                    "opset": model.opset_imports.get("", 1),
                    "ir_version": model.ir_version,
                }
                for file, (names, model) in models.items()
            ),
            *({"file": converted[name], "engines": [name], "opset": None, "ir_version": None} for name in programs),
        ],
        "inputs": [spec.to_dict() for spec in inputs],
        "outputs": [spec.to_dict() for spec in outputs],
        "operators": [step.to_dict() for step in climbed.steps],
        "adaptations": {name: [item.to_dict() for item in items] for name, items in climbed.adaptations.items()},
        "kernels": [built.to_dict() for built in climbed.built],
        "opset_reason": str(climbed.onnx.opset_reason) if climbed.onnx is not None else "",
        "dynamic": {size: [1, None] for size in _named_sizes(inputs)},
        **facts,
    }


def _interface(climbed: ClimbedAll) -> tuple[Sequence[TensorSpec], Sequence[TensorSpec]]:
    """The inputs and outputs, which are the same for all engines."""
    if climbed.onnx is None:
        program = next(iter(climbed.programs.values())).program
        return program.inputs, program.outputs
    graph = next(iter(climbed.onnx.models.values())).graph
    inputs = [_tensor_spec(value) for value in graph.inputs if value.name not in graph.initializers]
    return inputs, [_tensor_spec(value) for value in graph.outputs]


def _named_sizes(specs: Sequence[TensorSpec]) -> list[str]:
    return sorted({size for spec in specs for size in spec.shape if isinstance(size, str)})


def _tensor_spec(value: ir.Value) -> TensorSpec:
    import onnx_ir as ir

    dtype = "str" if value.dtype is ir.DataType.STRING else str((value.dtype or ir.DataType.FLOAT).numpy())
    shape = tuple(
        size if isinstance(size, int) else size.value or f"{value.name}.{axis}"
        for axis, size in enumerate(value.shape or ())
    )
    return TensorSpec(str(value.name), dtype, shape)


def _versions(engines: Sequence[Engine], packages: Sequence[str]) -> dict[str, str]:
    found = {}
    for package in (*packages, "onnx", "onnx-ir", "onnxscript"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return {**found, **{engine.name: engine.version for engine in engines}}


def make_sources(file: Path | None, climbed: ClimbedAll, found: Sequence[Finding]) -> dict[str, Any]:
    """The side file: the source locations of the entry, the nodes and the operators, the findings, and a small graph.

    Args:
        file: The file that the entry is defined in, or the ONNX file; None for a model in memory.
        climbed: The result of the ladder.
        found: The findings about the model.
    """
    translated = climbed.onnx.translated if climbed.onnx is not None else None
    model = next(iter(distinct_models(climbed.onnx).values()))[1] if climbed.onnx is not None else None
    return {
        "entry_path": str(file) if file is not None else None,
        "nodes": dict(translated.sources) if translated is not None else {},
        "targets": dict(translated.targets) if translated is not None else {},
        "captured": dict(translated.captured) if translated is not None else {},
        "values": {name: origin.to_json() for name, origin in translated.origins.items()} if translated else {},
        "operators": {step.target: list(step.sources) for step in climbed.steps},
        "findings": [finding.to_dict() for finding in found],
        "graph": [row.to_dict() for row in graph_rows(model.graph)] if model is not None else [],
    }
