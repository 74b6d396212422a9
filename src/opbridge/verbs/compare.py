"""``compare`` two models: PyTorch eager, a captured program, an ONNX model on an engine, a bundle."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from opbridge.atomic import TemporaryFolder
from opbridge.bundle.checks import MANIFEST
from opbridge.bundle.trust import Consent
from opbridge.capture.entry import Entry, load_entry
from opbridge.catalog.declare.catalog import Catalog, Ops
from opbridge.catalog.declare.operator import without_kernels
from opbridge.errors import InputError
from opbridge.kernels.dtypes import numpy_dtype
from opbridge.proof.compare.pairing import Paired, pair
from opbridge.proof.compare.result import ModelComparison
from opbridge.proof.compare.sides import ModelSide, model_side
from opbridge.proof.verify.options import VerifyOptions
from opbridge.proof.verify.verification import DEFAULT_SEED
from opbridge.verbs.arguments import is_onnx
from opbridge.verbs.export import export

if TYPE_CHECKING:
    from opbridge.capture.capture import Captured
    from opbridge.proof.compare.torch_sides import TorchSide

__all__ = ["compare"]

Feeds = Mapping[str, np.ndarray]
_IN_PYTORCH = ("eager", "program")


def compare(
    first: Any,
    second: Any = None,
    *,
    engines: Sequence[str] = (),
    inputs: Sequence[Feeds] | None = None,
    seed: int | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    ops: Ops = (),
    trust: Consent = False,
    progress: Callable[[str], None] = lambda stage: None,
) -> ModelComparison:
    """Compare the results of two models on fresh inputs, within the tolerance of a verification.

    Args:
        first: The text of an entry (``"file.py:function"``, ``"model.pt2"``), an ``Entry``, the path of an ``.onnx``
            file, or the path of a bundle.
        second: The second model, in the same forms; by default the first model on another engine.
        engines: Two names for the engines of ``first`` and ``second``, or one name for each side that needs an engine.
            "eager" and "program" mean PyTorch, with the module or the captured program; an entry is exported for any
            other engine. By default an entry runs in eager mode, a bundle on its first engine, and a file on ONNX
            Runtime.
        inputs: Inputs by name, one mapping per case, instead of fresh ones.
        seed: The seed of the fresh inputs.
        rtol: A relative tolerance instead of the computed one.
        atol: An absolute tolerance instead of the computed one.
        ops: Operator files, directories, modules or decorated functions in addition to the catalog.
        trust: Whether you trust whoever made the bundles. Without it, the kernels of a bundle run only if you exported
            it on this machine; otherwise its function bodies run.
        progress: A callback that receives the name of each stage as it begins.

    Returns:
        The comparison. If one side is PyTorch, the float64 run of its captured graph determines the tolerance,
        otherwise that of the first model.

    Raises:
        InputError: The models have different inputs, or an argument can't be used.
        CaptureError: torch.export can't capture an entry.
        EngineError: An engine is not installed, or refuses a model.
    """
    options = VerifyOptions(DEFAULT_SEED if seed is None else seed, inputs, rtol, atol)
    texts = (first, first if second is None else second)
    with TemporaryFolder() as folder:
        loader = _Sides(ops, trust, Path(folder), progress)
        one, other = (
            loader.side(model, where) for model, where in zip(texts, _places(texts, engines, second), strict=True)
        )
        progress("comparing")
        if isinstance(one, ModelSide) and isinstance(other, ModelSide):
            return _compare_models(one, other, options)
        swapped = isinstance(one, ModelSide)
        reference, model = (other, one) if swapped else (one, other)
        return _compare_with_torch(reference, model, (one.label, other.label), options)


def _places(models: Sequence[Any], engines: Sequence[str], second: Any) -> tuple[str | None, str | None]:
    """The engine of each model; None for the default."""
    names = [engines] if isinstance(engines, str) else list(engines)
    if len(names) > 2:
        raise InputError(f"A comparison has two sides, and {len(names)} engines were named.", fix="name one or two.")
    if len(names) == 2:
        return names[0], names[1]
    if second is None:
        raise InputError(
            f"There is nothing to compare {models[0]} with.",
            fix="name a second model, or two engines, for example --engine onnxruntime,openvino.",
        )
    if not names:
        return None, None
    if all(_is_entry(model) for model in models):
        return names[0], names[0]
    one, other = (None if _is_entry(model) else names[0] for model in models)
    return one, other


def _is_entry(model: Any) -> bool:
    if not isinstance(model, str | Path):
        return not is_onnx(model)
    return not is_onnx(model) and not Path(model).is_dir() and not (Path(model) / MANIFEST).exists()


class _Sides:
    """Creates the sides of a comparison; an entry that is named twice is loaded only once."""

    def __init__(self, ops: Ops, trust: Consent, folder: Path, progress: Callable[[str], None]) -> None:
        self._ops = ops
        self._trust = trust
        self._folder = folder
        self._progress = progress
        self._captured: dict[Any, Captured] = {}
        self._entries: dict[Any, Any] = {}

    def side(self, model: Any, where: str | None) -> ModelSide | TorchSide:
        """The model on the engine ``where``."""
        if _is_entry(model):
            return self._exported(model, where) if where not in (None, *_IN_PYTORCH) else self._torch(model, where)
        if where in _IN_PYTORCH:
            raise InputError(f"{model} is not a valid entry and can't run in PyTorch.", fix="name an engine for it.")
        self._progress(f"reading {model}")
        if not isinstance(model, str | Path):
            raise InputError(f"A {type(model).__name__} can't be compared.", fix="save it, and pass its path.")
        return model_side(model, where, trust=self._trust)

    def _entry(self, model: Any) -> Any:
        key = model if isinstance(model, str | Path) else id(model)
        if key not in self._entries:
            self._progress(f"loading {model if isinstance(model, str | Path) else 'the model'}")
            if not isinstance(model, str | Path | Entry):
                raise InputError(
                    f"A {type(model).__name__} can't be compared by itself.",
                    fix="pass the text of an entry, an opbridge.capture.entry.Entry with its inputs, or a path.",
                )
            self._entries[key] = model if isinstance(model, Entry) else load_entry(str(model))
        return self._entries[key]

    def _torch(self, model: Any, where: str | None) -> TorchSide:
        from opbridge.proof.compare.torch_sides import EAGER, PROGRAM, captured_entry, torch_side

        entry = self._entry(model)
        if id(entry) not in self._captured:
            self._progress("capturing")
            self._captured[id(entry)] = captured_entry(entry, Catalog.load(self._ops))
        captured = self._captured[id(entry)]
        return torch_side(entry.text or "the model", captured, where or (EAGER if captured.module else PROGRAM))

    def _exported(self, model: Any, engine: str | None) -> ModelSide:
        entry = self._entry(model)
        bundle = export(
            entry.model,
            entry.args,
            entry.kwargs,
            path=self._folder / f"bundle{len(list(self._folder.iterdir()))}",
            engines=(str(engine),),
            dynamic_shapes=entry.dynamic_shapes,
            input_names=entry.input_names,
            output_names=entry.output_names,
            verify=False,
            ops=self._ops,
            progress=self._progress,
        )
        return model_side(bundle, engine, text=entry.text or "the model")


def _compare_with_torch(
    reference: Any, model: ModelSide | TorchSide, labels: tuple[str, str], options: VerifyOptions
) -> ModelComparison:
    """Compare a model with PyTorch, as a verification does."""
    from opbridge.proof.compare.torch_inputs import inputs_at
    from opbridge.proof.compare.torch_value_matching import match_values
    from opbridge.proof.verify.reference_captured import CapturedReference
    from opbridge.proof.verify.verify import verify

    with contextlib.closing(model.load()) as session:
        own = reference.load()
        pairing = pair(own, session, names=(reference.text, model.text))
        if options.inputs is None and pairing.fixed:
            fixed = inputs_at(reference.captured, pairing.fixed, options.seed)
            options = dataclasses.replace(options, inputs=[fixed])
        runs = Paired(session, pairing, _dtypes(own.outputs) if options.tolerance else None)
        more: dict[str, Any] = {"engine": model.label, "options": options}
        with without_kernels():
            matched = match_values(reference.captured, model, pairing, by_numbers=False)
            observable = None if matched is None else matched.observable
            verified = verify(CapturedReference(reference.captured), runs, observable=observable, **more)
            if verified.verdict == "failed" and matched is None:
                # Matching by numbers keeps all values of both models in memory, so it is done only if needed.
                matched = match_values(reference.captured, model, pairing)
                if matched is not None:
                    verified = verify(
                        CapturedReference(reference.captured), runs, observable=matched.observable, **more
                    )
                    verified = matched.named(verified, getattr(model, "sources", {}))
    return ModelComparison(*labels, reference.label, verified, pairing.notes)


def _compare_models(one: ModelSide, other: ModelSide, options: VerifyOptions) -> ModelComparison:
    """Compare two models that engines run; the first one that is an ONNX model determines the tolerance."""
    from opbridge.proof.compare.divergences import with_divergences
    from opbridge.proof.compare.models import verify_against

    if not one.has_graph and not other.has_graph:
        raise InputError(
            f"Neither {one.engine.name} nor {other.engine.name} runs an ONNX model, so nothing sets the budget.",
            fix="compare each with the entry: opbridge compare file.py:function BUNDLE.",
        )
    reference, model = (one, other) if one.has_graph else (other, one)
    with contextlib.closing(reference.load()) as own, contextlib.closing(model.load()) as session:
        pairing = pair(own, session, names=_names(reference, model))
        runs = Paired(session, pairing, _dtypes(own.outputs) if options.tolerance else None)
        verified = verify_against(
            reference,
            own,
            runs,
            label=model.label,
            fixed=pairing.fixed,
            options=dataclasses.replace(options, bisect=False),
        )
        verified = with_divergences(verified, reference, model, runs, pairing, options.tolerance)
    return ModelComparison(one.label, other.label, reference.label, verified, pairing.notes)


def _names(one: ModelSide, other: ModelSide) -> tuple[str, str]:
    return (one.text, other.text) if one.text != other.text else (one.label, other.label)


def _dtypes(outputs: Sequence[Any]) -> dict[str, np.dtype]:
    return {spec.name: numpy_dtype(spec.dtype) for spec in outputs}
