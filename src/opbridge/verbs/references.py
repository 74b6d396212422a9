"""The reference of a bundle: a captured program, or the ONNX model that the bundle was made from."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from opbridge.bundle.bundle import Bundle
from opbridge.bundle.captured import captured_of_bundle
from opbridge.bundle.trust import Trust
from opbridge.capture.capture import Captured
from opbridge.catalog.declare.catalog import Ops
from opbridge.catalog.declare.operator import without_kernels
from opbridge.engines.base import Engine, Session
from opbridge.engines.process.isolation import IsolatedSession
from opbridge.errors import InputError, OpbridgeError
from opbridge.findings.base import shortened
from opbridge.ladder.foreign_bodies import attach_bodies
from opbridge.onnx_model.model_hash import model_hash
from opbridge.onnx_model.read import read_model
from opbridge.proof.bisect.intermediate_checks import ObservableModel
from opbridge.proof.bisect.intermediates_engine import loader
from opbridge.proof.verify.comparability import reconsidered
from opbridge.proof.verify.inputs import InputSpecs
from opbridge.proof.verify.joined import with_note
from opbridge.proof.verify.modes import named_cases
from opbridge.proof.verify.onnx_inputs import OnnxInputs
from opbridge.proof.verify.options import VerifyOptions
from opbridge.proof.verify.reference_captured import CapturedReference
from opbridge.proof.verify.reference_onnx import OnnxReference
from opbridge.proof.verify.steps import with_steps
from opbridge.proof.verify.timing import CapturedCall
from opbridge.proof.verify.torch_times import timed_calls
from opbridge.proof.verify.verification import Verification
from opbridge.proof.verify.verify import not_loaded, verify
from opbridge.torch_graph.origins import Origin
from opbridge.torch_graph.weights import has_other_weights
from opbridge.verbs.arguments import declared_catalog, is_onnx
from opbridge.verbs.onnx_entry import load_onnx
from opbridge.vision.old_nodes import convert_old_nodes

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = [
    "ONNX_REFERENCE",
    "BundleReference",
    "BundleRun",
    "CapturedModel",
    "OriginalModel",
    "find_reference",
    "verify_run",
]

_EVALUATION_MODE = "the model was passed in training mode; it is exported and compared in evaluation mode"

ONNX_REFERENCE = "reference.onnx"
"""The file of the original ONNX model in a bundle that was exported with its reference."""


@dataclasses.dataclass(frozen=True)
class BundleRun:
    """One way to run a bundle.

    Attributes:
        engine: The engine.
        label: The engine's name in the result, with its kernels or without them.
        file: The model file.
        libraries: The libraries of kernels.
        origins: The values that the captured graph has too, by name.
    """

    engine: Engine
    label: str
    file: Path
    libraries: Sequence[Path]
    origins: Mapping[str, Origin]


class BundleReference(Protocol):
    """The reference that a bundle is compared with."""

    def verify(
        self, run: BundleRun, session: Session, observable: ObservableModel | None, options: VerifyOptions
    ) -> Verification:
        """Compare one run of the bundle with the reference.

        Args:
            run: The run.
            session: The loaded model.
            observable: The model whose intermediate values are read; None if the engine does not load ONNX.
            options: How to verify.
        """

    def example_feeds(self, options: VerifyOptions) -> Mapping[str, np.ndarray]:
        """Inputs to measure times with: the user's first ones, or others of a moderate size."""

    def call_times(self, feeds: Mapping[str, np.ndarray]) -> Sequence[CapturedCall]:
        """PyTorch's own times of its calls, if it is the reference."""


def find_reference(bundle: Bundle, reference: Any, ops: Ops, report: Callable[[str], None]) -> BundleReference:
    """The reference of a bundle.

    Args:
        bundle: The bundle.
        reference: The user's reference, as for :func:`opbridge.verify`.
        ops: Operator files, directories, modules or decorated functions in addition to the catalog.
        report: A callback that receives the name of each stage as it begins.

    Raises:
        InputError: The reference is not found, or it is not the model that was exported.
    """
    if "original" in bundle.manifest:
        return OriginalModel(_original(bundle, reference, ops))
    report("capturing")
    captured = captured_of_bundle(bundle, reference, ops)
    if has_other_weights(captured.program, bundle.manifest):
        raise InputError(
            f"The reference has other weights than the model that {bundle.path} was exported from.",
            fix="load the same weights in the entry (seed random ones with torch.manual_seed), or export again.",
        )
    return CapturedModel(captured)


class CapturedModel:
    """A captured program as the reference of a bundle.

    Attributes:
        captured: The program, and the model that it was captured from.
    """

    def __init__(self, captured: Captured) -> None:
        self.captured = captured

    def verify(
        self, run: BundleRun, session: Session, observable: ObservableModel | None, options: VerifyOptions
    ) -> Verification:
        """Compare one run of the bundle with PyTorch."""
        with without_kernels():
            reference = CapturedReference(self.captured)
            found = verify(reference, session, engine=run.label, options=options, observable=observable)
            if self.captured.state:
                found = with_steps(found, reference, self.captured, session, options)
            if self.captured.was_training:
                found = with_note(found, _EVALUATION_MODE)
            found = dataclasses.replace(found, assumptions=tuple(map(str, self.captured.assumptions)))
            return reconsidered(found, self.captured, run.engine.name, run.libraries)

    def example_feeds(self, options: VerifyOptions) -> Mapping[str, np.ndarray]:
        """The user's first inputs, or the example inputs."""
        specs = InputSpecs(self.captured)
        return specs.feeds(specs.given(named_cases(options.inputs)[0][1])[0] if options.inputs else specs.flat)

    def call_times(self, feeds: Mapping[str, np.ndarray]) -> Sequence[CapturedCall]:
        """PyTorch's times of the calls of the program."""
        with without_kernels():
            return timed_calls(self.captured.program, InputSpecs(self.captured).given(feeds)[0])


class OriginalModel:
    """The ONNX model that a bundle was made from, as its reference.

    Args:
        model: The model, with the declared bodies of its custom nodes.
        examples: Example inputs by name, if the user gave some.
    """

    def __init__(self, model: ir.Model, examples: Mapping[str, np.ndarray] | None = None) -> None:
        self._model = model
        self._examples = examples

    def verify(
        self, run: BundleRun, session: Session, observable: ObservableModel | None, options: VerifyOptions
    ) -> Verification:
        """Compare one run of the bundle with the original model."""
        with OnnxReference(self._model, run.engine, examples=self._examples) as reference:
            return verify(reference, session, engine=run.label, options=options, observable=observable)

    def example_feeds(self, options: VerifyOptions) -> Mapping[str, np.ndarray]:
        """The user's first inputs, or generated inputs of moderate size."""
        if options.inputs:
            return named_cases(options.inputs)[0][1]
        inputs = OnnxInputs(self._model, self._examples)
        return inputs.feeds(next(inputs.first_sizes()), options.seed, inputs.scales()[-1])

    def call_times(self, feeds: Mapping[str, np.ndarray]) -> Sequence[CapturedCall]:
        """None: PyTorch does not run it."""
        return ()


def verify_run(reference: BundleReference, run: BundleRun, options: VerifyOptions) -> Verification:
    """Load the model of one run in a child process, and compare it with the reference."""
    try:
        session = IsolatedSession(run.engine.name, run.file, libraries=run.libraries)
    except OpbridgeError as error:
        return not_loaded(run.label, error, options.seed)
    has_graph = run.engine.accepts == "onnx"
    observable = ObservableModel(run.file, loader(run.engine, run.libraries), run.origins) if has_graph else None
    with contextlib.closing(session):
        return reference.verify(run, session, observable, options)


def _original(bundle: Bundle, reference: Any, ops: Ops) -> ir.Model:
    if reference is None and ONNX_REFERENCE in bundle.manifest["files"]:
        return read_model(bundle.path / ONNX_REFERENCE)
    if reference is not None and not is_onnx(reference) and not _is_file(reference):
        raise InputError(
            f"{bundle.path} was exported from an ONNX model, which {shortened(repr(reference))} is not.",
            fix="name the original with --reference model.onnx.",
        )
    entry = load_onnx(_find(bundle) if reference is None else reference)
    recorded = bundle.manifest["original"]["sha256"]
    if model_hash(entry.model) != recorded:
        raise InputError(
            f"{entry.text or 'The reference'} is not the model that {bundle.path} was made from: its content differs.",
            fix="name the original with --reference model.onnx, or export again (--with-reference keeps a copy).",
        )
    catalog = declared_catalog(ops, entry.model)
    model, _ = convert_old_nodes(entry.model.clone(), catalog)
    attach_bodies(model, catalog)
    return model


def _is_file(reference: Any) -> bool:
    return isinstance(reference, str | Path) and Path(reference).is_file()


def _find(bundle: Bundle) -> Path:
    """The file of the original model, at the path in the manifest or at its path when the bundle was made."""
    if bundle.trust is Trust.NONE:
        raise bundle.refusal(
            f"The bundle names {bundle.entry or 'a file'} as the model to compare with",
            "name the model yourself with --reference model.onnx",
        )
    for place in (bundle.entry, bundle.recorded_path):
        if place is not None and Path(place).is_file():
            return Path(place)
    raise InputError(
        f"The ONNX model that {bundle.path} was made from ({bundle.entry or 'one in memory'}) is not here.",
        fix="name it with --reference model.onnx; --with-reference of export keeps a copy in the bundle.",
    )
