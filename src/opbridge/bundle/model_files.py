"""The files of a bundle beside its manifest: the models, the libraries of kernels, what engines make ahead of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from opbridge.bundle.manifest import distinct_models
from opbridge.engines.base import Engine
from opbridge.engines.process.isolation import compile_isolated
from opbridge.engines.roles import CompilesAhead, TakesTorchPrograms
from opbridge.ladder.build import Built, write_libraries
from opbridge.onnx_model.write import save_model

if TYPE_CHECKING:
    from opbridge.ladder.climb_onnx import ClimbedModel
    from opbridge.ladder.climb_torch import ClimbedProgram
    from opbridge.ladder.climbed import Climbed

__all__ = ["convert_programs", "write_models"]


def write_models(
    folder: Path,
    climbed: Climbed | ClimbedModel | None,
    engines: Sequence[Engine],
    external_data: bool | None,
    programs: Sequence[ClimbedProgram] = (),
) -> None:
    """Write the models and the libraries into a bundle's folder, and let each engine make what it makes ahead of time.

    Args:
        folder: The folder.
        climbed: The ONNX models; None where no engine loads any.
        engines: All engines.
        external_data: Whether the weights are in a file beside the model; None leaves it to their size.
        programs: The models of engines that take a torch program, whose files are made by :func:`convert_programs`.

    Raises:
        EngineError: An engine can't make its part.
    """
    built = [program.built for program in programs if program.built is not None]
    write_libraries([*(climbed.built.values() if climbed is not None else ()), *built], folder)
    models = distinct_models(climbed) if climbed is not None else {}
    for file, (_, model) in models.items():
        save_model(model, folder, name=file, external_data=external_data)
    by_name = {engine.name: engine for engine in engines}
    libraries: Mapping[str, Built] = climbed.built if climbed is not None else {}
    for file, (names, _) in models.items():
        for name in names:
            own = (folder / libraries[name].file,) if name in libraries else ()
            compile_isolated(by_name[name], folder / file, own)
            if isinstance(engine := by_name[name], CompilesAhead):
                engine.write_sources(folder / file)


def convert_programs(programs: Mapping[str, ClimbedProgram], engines: Sequence[Engine], folder: Path) -> dict[str, str]:
    """Let the engines that take a torch program write their models into a folder; the main file of each, by its name.

    Raises:
        EngineError: An engine refuses its program.
    """
    by_name = {engine.name: engine for engine in engines if isinstance(engine, TakesTorchPrograms)}
    return {name: by_name[name].convert(climbed.program, folder) for name, climbed in programs.items()}
