"""The files of a bundle other than the manifest: models, libraries of kernels, and files compiled by engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opbridge.engines.base import Engine
from opbridge.engines.process.isolation import compile_isolated
from opbridge.engines.roles import CompilesAhead, TakesTorchPrograms
from opbridge.ladder.build import write_libraries
from opbridge.onnx_model.write import save_model

if TYPE_CHECKING:
    import onnx_ir as ir

    from opbridge.ladder.climb_torch import ClimbedProgram
    from opbridge.ladder.climbed import Climbed, ClimbedAll

__all__ = ["MODEL", "convert_programs", "distinct_models", "write_models"]

MODEL = "model.onnx"


def distinct_models(climbed: Climbed) -> dict[str, tuple[list[str], ir.Model]]:
    """The engines and the model of each ``.onnx`` file; engines with the same adaptations share a file."""
    needs: dict[Any, tuple[list[str], ir.Model]] = {}
    for name, model in climbed.models.items():
        need = (climbed.adaptations[name], model.opset_imports.get(""), model.ir_version)
        needs.setdefault(need, ([], model))[0].append(name)
    files: dict[str, tuple[list[str], ir.Model]] = {}
    for (adaptations, *_), (names, model) in needs.items():
        plain = len(needs) == 1 or (not adaptations and MODEL not in files)
        # "==", as in "onnxruntime==1.16.3", is not valid in a file name on every system.
        files[MODEL if plain else f"model.{names[0].replace('==', '-')}.onnx"] = (names, model)
    return files


def write_models(folder: Path, climbed: ClimbedAll, engines: Sequence[Engine], external_data: bool | None) -> None:
    """Write the ONNX models, the libraries and the files that engines compile ahead of time into a bundle's folder.

    Args:
        folder: The folder of the bundle.
        climbed: The result of the ladder. The models of engines that take a torch program are written by
            :func:`convert_programs`.
        engines: All engines.
        external_data: Whether to store the weights in a separate file; None decides by their size.

    Raises:
        EngineError: An engine can't compile its model.
    """
    write_libraries(climbed.built, folder)
    if climbed.onnx is None:
        return
    models = distinct_models(climbed.onnx)
    for file, (_, model) in models.items():
        save_model(model, folder, name=file, external_data=external_data)
    by_name = {engine.name: engine for engine in engines}
    for file, (names, _) in models.items():
        for name in names:
            built = climbed.onnx.built.get(name)
            compile_isolated(by_name[name], folder / file, (folder / built.file,) if built is not None else ())
            if isinstance(engine := by_name[name], CompilesAhead):
                engine.write_sources(folder / file)


def convert_programs(programs: Mapping[str, ClimbedProgram], engines: Sequence[Engine], folder: Path) -> dict[str, str]:
    """Write the models of the engines that take a torch program into a folder.

    Returns:
        The name of each engine's main file, by the engine's name.

    Raises:
        EngineError: An engine refuses its program.
    """
    by_name = {engine.name: engine for engine in engines if isinstance(engine, TakesTorchPrograms)}
    return {name: by_name[name].convert(climbed.program, folder) for name, climbed in programs.items()}
