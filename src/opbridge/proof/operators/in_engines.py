"""The checks in an engine: each sample is exported as a model of one call and verified."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from opbridge.atomic import TemporaryFolder
from opbridge.bundle.bundle import Bundle
from opbridge.catalog.declare.operator import without_kernels
from opbridge.engines import get
from opbridge.engines.process.isolation import IsolatedSession
from opbridge.errors import EngineNotInstalledError, InputError
from opbridge.proof.operators.outcome import Outcome, failed, failed_with, not_applicable
from opbridge.proof.operators.subjects import Case
from opbridge.proof.operators.verdict import judged
from opbridge.proof.verify.options import VerifyOptions
from opbridge.proof.verify.reference_captured import CapturedReference
from opbridge.proof.verify.verify import verify

__all__ = ["check_engine", "missing_engine"]


def missing_engine(name: str) -> str | None:
    """Why an engine is not available; None if it is installed."""
    try:
        get(name).version  # noqa: B018 - raises if it is not installed
    except EngineNotInstalledError as error:
        return f"{error.message} {error.fix}"
    except InputError as error:
        return error.message
    return None


def check_engine(case: Case, engine: str, export: Callable[..., Bundle]) -> Iterator[tuple[str, Outcome]]:
    """Export the sample and verify it: with its kernels and with its function bodies, if it has both.

    Args:
        case: The sample.
        engine: The engine's name.
        export: :func:`opbridge.export`.

    Yields:
        The name of each check and its outcome.
    """
    if (reason := _not_held(case, engine)) is not None:
        yield engine, not_applicable(reason)
        return
    with TemporaryFolder() as folder:
        try:
            bundle = export(case.module, case.tensors, path=Path(folder) / "bundle", engines=[engine], verify=False)
        except Exception as error:
            yield engine, failed_with(error)
            return
        unused = _unused(case, bundle)
        if unused is not None:
            yield engine, failed(unused)
            return
        kernels = bundle.kernels(engine)
        if kernels is None:
            yield engine, _verified(case, engine, bundle, ())
            return
        yield f"{engine}, kernel", _verified(case, engine, bundle, (bundle.path / kernels["file"],))
        if kernels["optional"]:
            yield f"{engine}, function body", _verified(case, engine, bundle, ())


def _not_held(case: Case, engine: str) -> str | None:
    """Why the engine can't hold a tensor of the sample; None if it can hold all."""
    held = get(engine)
    reasons = (held.cannot_hold(str(tensor.dtype).removeprefix("torch."), tensor.shape) for tensor in case.tensors)
    return next(filter(None, reasons), None)


def _unused(case: Case, bundle: Bundle) -> str | None:
    """Why this export did not use the mapping that is checked; None if it did."""
    spec = case.subject.spec
    if spec is None or spec.rung not in ("decompose", "translate"):
        return None
    name = spec.target.partition(".")[0]
    steps = [step for step in bundle.manifest["operators"] if step["target"].partition(".")[0] == name]
    if any(step["rung"] == spec.rung and step["provider"] == "user" for step in steps):
        return None
    taken = ", ".join(f"{step['rung']} by {step['provider']}" for step in steps)
    return f"the export did not use this mapping ({taken or 'the graph has no such operator'})"


def _verified(case: Case, engine: str, bundle: Bundle, libraries: Sequence[Path]) -> Outcome:
    """Verify the bundle on the sample's own values and on fresh values."""
    try:
        with IsolatedSession(engine, bundle.model_file(engine), libraries=libraries) as session, without_kernels():
            own = verify(
                CapturedReference(case.captured), session, engine=engine, options=VerifyOptions(inputs=[case.feeds])
            )
            return judged([own, verify(CapturedReference(case.captured), session, engine=engine)])
    except Exception as error:
        return failed_with(error)
