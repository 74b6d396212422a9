"""Checks samples of one entry with an exporter and an engine, in the same stages as :func:`opbridge.export`."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from opbridge.atomic import TemporaryFolder
from opbridge.capture.capture import Captured, capture
from opbridge.catalog.declare.catalog import Catalog
from opbridge.catalog.declare.operator import without_kernels
from opbridge.engines import get
from opbridge.engines.base import Session
from opbridge.errors import InputError, OpbridgeError
from opbridge.proof.conformance.calls import Batch, Call
from opbridge.proof.conformance.definitions import definition_of, differs_by_definition
from opbridge.proof.conformance.exporters import EXPORTERS, Exported, Failure
from opbridge.proof.conformance.results import Way
from opbridge.proof.conformance.sizes import enlarged, moves_of
from opbridge.proof.verify.inputs import to_numpy
from opbridge.proof.verify.options import VerifyOptions
from opbridge.proof.verify.reference_captured import CapturedReference
from opbridge.proof.verify.verification import OUTSIDE
from opbridge.proof.verify.verify import verify
from opbridge.torch_graph.silence import silenced

__all__ = ["Checked", "Checker", "Positional"]

_LONGEST_ERROR = 400


@dataclasses.dataclass(frozen=True)
class Checked:
    """The result of calls that were exported as one model.

    Attributes:
        status: One of :data:`opbridge.proof.conformance.results.STATUSES`.
        error: The error in one line.
        rungs: The rung of each operator that has no mapping in torch.onnx.
        seconds: The time by stage.
        wrong: For a mismatch, the positions of the calls with wrong results.
    """

    status: str
    error: str = ""
    rungs: Mapping[str, str] = dataclasses.field(default_factory=dict)
    seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    wrong: tuple[int, ...] = ()


class Checker:
    """Checks calls with one exporter and one engine.

    Args:
        way: The exporter, the engine and their options.
        begin: A callback that receives the name of each stage as it begins.
    """

    def __init__(self, way: Way, begin: Callable[[str], None] = lambda stage: None) -> None:
        self._way = way
        self._begin = begin
        self._engine = get(way.engine)
        self._catalog = dataclasses.replace(Catalog.load(nan=way.nan), kernels=way.kernels)

    def check(self, entry: str, calls: Sequence[Call]) -> Checked:
        """Export the calls as one model and verify it on their own values."""
        run = _Run(self._begin)
        rungs: Mapping[str, str] = {}
        wrong: dict[int, str] = {}
        try:
            with run.stage("capture"):
                moves = [moves_of(entry, call) for call in calls] if self._way.dynamic else []
                shapes = _dynamic_shapes(calls, moves) if moves else None
                captured = self._captured(calls, shapes)
            with TemporaryFolder() as folder:
                with run.stage("translate"):
                    export = EXPORTERS[self._way.exporter]
                    exported = export(captured, self._engine, Path(folder), self._catalog, shapes)
                    rungs = exported.rungs
                for libraries in exported.libraries:
                    with run.stage("load"):
                        session = Positional(self._load(exported, libraries), captured)
                    given = _second_sizes(entry, calls, moves, session, captured) if moves else calls
                    with run.stage("run"):
                        wrong |= self._wrong(entry, captured, session, given)
        except Failure as failure:
            return Checked(failure.stage, one_line(str(failure)), rungs, run.seconds)
        if wrong:
            first = min(wrong)
            return Checked("mismatch", one_line(wrong[first]), rungs, run.seconds, tuple(sorted(wrong)))
        return Checked("pass", "", rungs, run.seconds)

    def _captured(self, calls: Sequence[Call], shapes: Any) -> Captured:
        tensors = tuple(tensor for call in calls for tensor in call.tensors)
        with silenced():
            return capture(Batch(calls), tensors, dynamic_shapes=shapes, rewrites=self._catalog.rewrites())

    def _load(self, exported: Exported, libraries: Sequence[Path]) -> Session:
        return self._engine.load(exported.path, threads=1, libraries=libraries)

    def _wrong(self, entry: str, captured: Captured, session: Positional, calls: Sequence[Call]) -> dict[int, str]:
        """The reason for each wrong result, by the position of its call.

        Raises:
            Failure: The engine fails to run, or the captured graph does not compute what PyTorch computes.
        """
        feeds = dict(zip(captured.input_names, (to_numpy(t) for call in calls for t in call.tensors), strict=True))
        name = definition_of(entry)
        reference = captured if name is None else dataclasses.replace(captured, module=None)
        try:
            with without_kernels(), silenced():
                found = verify(
                    CapturedReference(reference),
                    session,
                    engine=self._engine.name,
                    options=VerifyOptions(inputs=[feeds], nan=self._way.nan),
                )
        except InputError as error:
            raise Failure("capture", error.message) from error
        if found.error is not None:
            is_outside = any(case.verdict == OUTSIDE for case in found.cases)
            raise Failure(OUTSIDE if is_outside else "run", found.error)
        failed = {comparison.output: str(comparison) for comparison in found.comparisons if not comparison.passed}
        unlike_eager = found.eager_matches_capture is False and len(calls) > 1
        if unlike_eager or (not failed and not found.passed):
            raise Failure("capture", "the captured graph does not compute what PyTorch computes")
        wrong: dict[int, str] = {}
        # A result that is not unique may be within the tolerance and still not satisfy its definition.
        has_reasons = bool(failed) or name is not None
        for position, (call, names) in enumerate(_with_outputs(calls, captured.output_names) if has_reasons else []):
            reasons = [failed[output] for output in names if output in failed]
            if name is not None:
                results = [session.last[captured.output_names.index(output)] for output in names]
                reasons = list(filter(None, [differs_by_definition(name, call, results)]))
            if reasons:
                wrong[position] = reasons[0]
        return wrong


def _with_outputs(calls: Sequence[Call], names: Sequence[str]) -> Iterator[tuple[Call, Sequence[str]]]:
    """Each call with the names of its outputs.

    Raises:
        Failure: The model and the calls have different numbers of outputs.
    """
    remaining = list(names)
    for call in calls:
        count = len(names) if len(calls) == 1 else call.results_count()
        if count > len(remaining):
            raise Failure("capture", f"the model has {len(names)} outputs, too few for its {len(calls)} calls")
        yield call, remaining[:count]
        remaining = remaining[count:]


class _Run:
    """The stages of one check with their times."""

    def __init__(self, begin: Callable[[str], None]) -> None:
        self._begin = begin
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Run a stage; an exception is raised as the failure of the stage."""
        self._begin(name)
        start = time.perf_counter()
        try:
            yield
        except Failure:
            raise
        except OpbridgeError as error:
            raise Failure(name, error.message) from error
        except Exception as error:
            raise Failure(name, f"{type(error).__name__}: {error}") from error
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


class Positional:
    """A session with the captured program's names, because the plain exporter uses other names.

    Args:
        session: The model in an engine.
        captured: The program that the model was exported from.

    Attributes:
        session: The session.
        last: The results of the last run, in order.

    Raises:
        Failure: The numbers of inputs or outputs differ.
    """

    def __init__(self, session: Session, captured: Captured) -> None:
        self.session = session
        self._inputs, self._outputs = captured.input_names, captured.output_names
        self.last: list[np.ndarray] = []
        for kind, names, specs in (
            ("inputs", self._inputs, session.inputs),
            ("outputs", self._outputs, session.outputs),
        ):
            if len(names) != len(specs):
                raise Failure("load", f"the model has {len(specs)} {kind}, the captured program {len(names)}")

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """See :meth:`opbridge.engines.base.Session.run`."""
        own = {spec.name: feeds[name] for spec, name in zip(self.session.inputs, self._inputs, strict=True)}
        results = self.session.run(own)
        self.last = [results[spec.name] for spec in self.session.outputs]
        return dict(zip(self._outputs, self.last, strict=True))


def _dynamic_shapes(calls: Sequence[Call], moves: Sequence[Sequence[frozenset[tuple[int, int]]]]) -> Any:
    """The dynamic shapes for ``torch.export``: every dimension that can be enlarged, as far as the operator allows."""
    shapes = []
    for call, own in zip(calls, moves, strict=True):
        moving = frozenset().union(*own)
        for i, tensor in enumerate(call.tensors):
            auto = torch.export.Dim.AUTO
            shapes.append({axis: auto for axis in range(tensor.dim()) if (i, axis) in moving})
    return (tuple(shapes),)


def _second_sizes(
    entry: str, calls: Sequence[Call], moves: Sequence[Any], session: Positional, captured: Captured
) -> list[Call]:
    """The calls at their second sizes, for dimensions that are symbolic in the model and valid at that size.

    Raises:
        Failure: A call has no such dimension.
    """
    specs = iter(session.session.inputs)
    larger: list[Call | None] = []
    symbolic: list[list[Any]] = []
    for call, own in zip(calls, moves, strict=True):
        shapes = [next(specs).shape for _ in call.tensors]
        symbolic.append([move for move in own if all(isinstance(shapes[i][axis], str) for i, axis in move)])
        larger.append(enlarged(entry, call, symbolic[-1]))
    found = [own if own is not None else call for own, call in zip(larger, calls, strict=True)]
    if None in larger or not all(symbolic) or not _holds(captured, found):
        found = list(calls)
        for position, (call, kept) in enumerate(zip(calls, symbolic, strict=True)):
            found[position] = _largest(entry, call, kept, functools.partial(_holds_with, captured, calls, position))
    return found


def _largest(entry: str, call: Call, moves: Sequence[Any], holds: Callable[[Call], bool]) -> Call:
    """The call with as many of the moves applied, one after the other, as are valid together."""
    taken: list[Any] = []
    largest = None
    for move in moves:
        larger = enlarged(entry, call, [*taken, move])
        if larger is not None and holds(larger):
            taken.append(move)
            largest = larger
    if largest is None:
        raise Failure("capture", f"no dimension of {call} stayed dynamic")
    return largest


def _holds_with(captured: Captured, calls: Sequence[Call], position: int, larger: Call) -> bool:
    return _holds(captured, [*calls[:position], larger, *calls[position + 1 :]])


def _holds(captured: Captured, calls: Sequence[Call]) -> bool:
    """Whether the captured program is valid for these sizes, according to torch's guards."""
    try:
        with torch.no_grad(), silenced():
            captured.program.module()(*(tensor.clone() for call in calls for tensor in call.tensors))
    except AssertionError:
        return False
    except Exception:  # The values are verified afterwards.
        return True
    return True


def one_line(text: str) -> str:
    """The text without its line breaks, shortened."""
    flat = " ".join(text.split())
    return flat if len(flat) <= _LONGEST_ERROR else f"{flat[: _LONGEST_ERROR - 3]}..."
