"""``reduce``: find the smallest model that still fails, and write it as a script for a bug report."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from opbridge.atomic import TemporaryFolder, check_new_folder
from opbridge.bundle.trust import Consent
from opbridge.capture.entry import as_entry
from opbridge.catalog.declare.catalog import Catalog, Ops
from opbridge.errors import InputError
from opbridge.proof.compare.sides import ModelSide, model_side
from opbridge.proof.reduce.result import Reduction
from opbridge.verbs.arguments import is_onnx
from opbridge.verbs.export import export

__all__ = ["reduce"]

DEFAULT_SECONDS = 600.0
_TRY_SECONDS = 60.0
"""The time limit in seconds for loading a part of a model and for each run; longer ones count as hanging."""


def reduce(
    model: str | Path,
    *,
    path: str | Path,
    engine: str | None = None,
    inputs: Sequence[Mapping[str, np.ndarray]] | None = None,
    seed: int | None = None,
    reference: Any = None,
    ops: Ops = (),
    trust: Consent = False,
    time_limit: float = DEFAULT_SECONDS,
    progress: Callable[[str], None] = lambda stage: None,
) -> Reduction:
    """Find the smallest model that still fails, and write it with a script that reproduces the failure.

    The failure may be in an engine with an ONNX model (results that violate the standard, a crash, a hang, an error),
    in a model whose results differ from PyTorch's, or in an export.

    Args:
        model: The path of a bundle or of an ``.onnx`` file, or the text of an entry.
        path: The folder to create, which is written atomically.
        engine: The engine; by default the bundle's first engine, otherwise ONNX Runtime.
        inputs: The inputs on which the model fails, by name, one mapping per case, instead of fresh ones.
        seed: The seed of the fresh inputs.
        reference: The model that a bundle is compared with; see :func:`verify`.
        ops: Operator files, directories, modules or decorated functions in addition to the catalog.
        trust: Whether you trust whoever made the bundle; see :func:`verify`.
        time_limit: The time in seconds after which the smallest model found so far is written.
        progress: A callback that receives the name of each stage and of each trial.

    Raises:
        InputError: Nothing fails, an argument (such as the reference) can't be used, or the folder can't be written.
        EngineError: The engine is not installed.
    """
    from opbridge.proof.reduce.trials import Clock

    if not time_limit > 0:
        raise InputError(f"A time limit of {time_limit:g} seconds leaves no time.", fix="pass a number above 0.")
    check_new_folder(path)
    started = time.monotonic()
    clock = Clock(time_limit, progress)
    if is_onnx(model) or Path(model).is_dir():
        side = model_side(model, engine, trust=trust)
        if reference is not None:
            progress(f"loading {reference}" if isinstance(reference, str) else "loading the reference")
            reference = as_entry(reference)
        if ops:
            Catalog.load(ops)  # It imports these files, so an error in them is reported before the search.
        return _reduce_side(side, Path(path), clock, started, inputs, seed, reference, ops, progress)
    with TemporaryFolder() as folder:
        from opbridge.proof.reduce.exports import exported_or_reduced

        bundle = Path(folder) / "bundle"
        found = exported_or_reduced(
            str(model), engine or "onnxruntime", bundle, Path(path), ops, clock, started, progress, export
        )
        if isinstance(found, Reduction):
            return found
        return _reduce_side(found, Path(path), clock, started, inputs, seed, str(model), ops, progress)


def _reduce_side(
    side: ModelSide,
    path: Path,
    clock: Any,
    started: float,
    inputs: Sequence[Mapping[str, np.ndarray]] | None,
    seed: int | None,
    reference: Any,
    ops: Ops,
    progress: Callable[[str], None],
) -> Reduction:
    """Reduce a model on an engine: first against the standard, then against PyTorch if that reference is known."""
    from opbridge.proof.reduce.models import failing_case, nothing_fails, reduce_model
    from opbridge.proof.reduce.output import written
    from opbridge.proof.reduce.trials import EngineTrials

    if not side.has_graph:
        raise InputError(
            f"{side.engine.name}'s model is not an ONNX model and can't be cut into parts.",
            fix="reduce what it was exported from: opbridge reduce file.py:function --engine onnxruntime",
        )
    progress("looking for inputs on which it fails")
    trials = EngineTrials(side.engine, side.libraries, _TRY_SECONDS, clock)
    found = failing_case(side, trials, inputs, seed)
    if found is None and (reference is not None or side.from_torch):
        from opbridge.proof.reduce.mappings import wrong_segment

        progress("comparing with PyTorch")
        wrong = wrong_segment(side, reference, inputs, seed, ops)
        if wrong is not None:
            return written(
                path, side, wrong.problem, wrong.tried, wrong.nodes_before, clock, started, fault=wrong.fault
            )
    if found is None:
        raise nothing_fails(side, reference)
    before = len(found[0].nodes)
    problem, tried = reduce_model(*found, side, trials, clock)
    return written(path, side, problem, tried, before, clock, started)
