"""The source of a model: PyTorch or ONNX. The rest of each verb is the same for both."""

from __future__ import annotations

import concurrent.futures
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from opbridge.bundle.captured import INITIAL_STATE, REFERENCE, capture_entry
from opbridge.capture.capture import Captured
from opbridge.capture.entry import Entry, entry_file
from opbridge.catalog.declare.catalog import Catalog
from opbridge.catalog.declare.fakes import check_fakes
from opbridge.catalog.declare.operator import without_kernels
from opbridge.errors import InputError
from opbridge.ladder.climbed import ClimbedAll
from opbridge.ladder.kernel_shapes import check_kernel_shapes
from opbridge.onnx_model.model_hash import model_hash
from opbridge.onnx_model.write import save_model
from opbridge.proof.verify.inputs import to_numpy
from opbridge.records import write_npz
from opbridge.torch_graph.weights import hashed_weights
from opbridge.verbs.onnx_entry import OnnxEntry
from opbridge.verbs.options import ExportOptions
from opbridge.verbs.references import ONNX_REFERENCE, BundleReference, CapturedModel, OriginalModel

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["Source", "open_source"]


class Source(Protocol):
    """The source of a model.

    Attributes:
        catalog: The mappings and the declared bodies.
    """

    catalog: Catalog

    @property
    def text(self) -> str:
        """The entry or the file as the user wrote it; empty for a model in memory."""

    @property
    def file(self) -> Path | None:
        """The file that the entry is defined in, or the ONNX file."""

    @property
    def model(self) -> Captured | ir.Model:
        """The model that climbs the ladder."""

    @property
    def captured(self) -> Captured | None:
        """The captured program; None for an ONNX model."""

    def prepare(self, options: ExportOptions) -> None:
        """Check the model before the ladder. Raises InputError if it can't be exported with these options."""

    def check_kernels(self, climbed: ClimbedAll) -> None:
        """Check the kernels that were built. Raises InputError if one disagrees with the model."""

    def packages(self, climbed: ClimbedAll) -> Sequence[str]:
        """The packages whose versions the manifest records, in addition to those of ONNX and the engines."""

    def manifest_entries(self) -> Mapping[str, Any]:
        """The entries of the manifest that only the source knows."""

    def save_reference(self, climbed: ClimbedAll, folder: Path, external_data: bool | None) -> None:
        """Write the reference for later verifications, which then do not need the source."""

    def save_state(self, folder: Path) -> None:
        """Write the values of the state's inputs for the first run, if the model has a state."""

    def reference(self, climbed: ClimbedAll) -> BundleReference:
        """The reference that the bundle is compared with."""


def open_source(entry: Entry | OnnxEntry, catalog: Catalog, report: Callable[[str], None]) -> Source:
    """Capture a PyTorch model, or use an ONNX model unchanged.

    Args:
        entry: The model with its inputs.
        catalog: The mappings and the declared bodies.
        report: A callback that receives the name of each stage as it begins.

    Raises:
        CaptureError: torch.export can't capture the model.
        InputError: The arguments do not fit the model.
    """
    if isinstance(entry, OnnxEntry):
        return _OnnxSource(entry, catalog)
    report("capturing")
    captured = capture_entry(entry, catalog, entry.input_names, entry.output_names)
    return _TorchSource(entry, captured, catalog.extended(captured.declared))


class _TorchSource:
    """A captured PyTorch model."""

    def __init__(self, entry: Entry, captured: Captured, catalog: Catalog) -> None:
        self.text = entry.text
        self.file = entry_file(entry.text) if entry.text else None
        self.model = self.captured = captured
        self.catalog = catalog
        self._weights: concurrent.futures.Future[dict[str, Any]] | None = None

    def prepare(self, options: ExportOptions) -> None:
        """Check the fake implementations, and start hashing the weights in a thread: hashing releases the GIL."""
        if options.with_reference:
            _refuse_functions(self.captured)
        with without_kernels():
            check_fakes(self.captured.program)
        pool = concurrent.futures.ThreadPoolExecutor(1)
        self._weights = pool.submit(hashed_weights, self.captured.program)
        pool.shutdown(wait=False)

    def check_kernels(self, climbed: ClimbedAll) -> None:
        """Compare the shape functions of the kernels with the shapes of the captured program."""
        check_kernel_shapes(self.captured.program, climbed.built)

    def packages(self, climbed: ClimbedAll) -> Sequence[str]:
        """PyTorch and torchvision."""
        return ("torch", "torchvision")

    def manifest_entries(self) -> Mapping[str, Any]:
        """The dynamic dimensions, mode, contract about NaN, state and assumptions, and the hashes of the weights."""
        weights = hashed_weights(self.captured.program) if self._weights is None else self._weights.result()
        state = [item.to_dict() for item in self.captured.state]
        assumptions = [item.to_dict() for item in self.captured.assumptions]
        return {
            "dynamic": _ranges(self.captured),
            "was_training": self.captured.was_training,
            "nan": self.catalog.nan,
            **({"state_buffers": state} if state else {}),
            **({"assumptions": assumptions} if assumptions else {}),
            **weights,
        }

    def save_reference(self, climbed: ClimbedAll, folder: Path, external_data: bool | None) -> None:
        """Write the captured program."""
        with _ProgramFile(folder / REFERENCE, "wb") as file:
            torch.export.save(self.captured.program, file)
            if file.error is not None:
                raise file.error

    def save_state(self, folder: Path) -> None:
        """Write the buffers that are inputs."""
        if self.captured.state:
            arrays = {item.input: to_numpy(self.captured.kwargs[item.input]) for item in self.captured.state}
            write_npz(folder / INITIAL_STATE, arrays)

    def reference(self, climbed: ClimbedAll) -> BundleReference:
        """The captured program."""
        return CapturedModel(self.captured)


class _ProgramFile(io.FileIO):
    """A file whose errors are kept for later: torch's writer ends the process if one is raised."""

    error: OSError | None = None

    def write(self, data: Any) -> int:
        """Write all of the data, or nothing once there was an error."""
        left = memoryview(data)
        while left and self.error is None:
            try:
                left = left[super().write(left) :]
            except OSError as error:
                self.error = error
        return len(data)


def _refuse_functions(captured: Captured) -> None:
    """Refuse to save a program with nodes of autograd.Functions, whose operators do not exist in other processes."""
    if captured.declared:
        spec = captured.declared[0]
        raise InputError(
            f"with_reference: the model calls {spec.target.partition('::')[2]}, whose symbolic at {spec.source} is one "
            "node of the program, and no other process could read that from a saved one.",
            fix="leave it out; opbridge.verify takes reference='file.py:function', or an Entry.",
        )


def _ranges(captured: Captured) -> dict[str, list[int | None]]:
    """The smallest and the largest size of each dynamic dimension; None for no limit."""
    ranges: dict[str, list[int | None]] = {}
    for symbol, interval in captured.program.range_constraints.items():
        name = captured.dimension_names.get(str(symbol), str(symbol))
        # torch represents "no limit" by one of its infinities, or by a size that no tensor has.
        lower = int(interval.lower) if interval.lower > 0 else 0
        upper = int(interval.upper) if interval.upper < 2**31 else None
        # Symbols of one name have equal sizes.
        earlier = ranges.get(name, [0, None])
        limits = [limit for limit in (upper, earlier[1]) if limit is not None]
        ranges[name] = [max(lower, earlier[0] or 0), min(limits, default=None)]
    return dict(sorted(ranges.items()))


class _OnnxSource:
    """An ONNX model, which is verified against itself."""

    captured = None

    def __init__(self, entry: OnnxEntry, catalog: Catalog) -> None:
        self.text = entry.text
        self.file = entry.file
        self.model = entry.model
        self.catalog = catalog
        self._examples = entry.examples

    def prepare(self, options: ExportOptions) -> None:
        """Do nothing, because the model was checked when it was read."""

    def check_kernels(self, climbed: ClimbedAll) -> None:
        """Do nothing, because an ONNX model has no fake implementations to compare with."""

    def packages(self, climbed: ClimbedAll) -> Sequence[str]:
        """PyTorch, if it exported the body of a custom node."""
        return ("torch",) if climbed.onnx is not None and climbed.onnx.bodied else ()

    def manifest_entries(self) -> Mapping[str, Any]:
        """The hash of the model."""
        return {"weights": None, "original": {"sha256": model_hash(self.model)}}

    def save_reference(self, climbed: ClimbedAll, folder: Path, external_data: bool | None) -> None:
        """Write the model with the declared bodies."""
        save_model(_given(climbed), folder, name=ONNX_REFERENCE, external_data=external_data)

    def save_state(self, folder: Path) -> None:
        """Do nothing, because an ONNX model has its state among its inputs already."""

    def reference(self, climbed: ClimbedAll) -> BundleReference:
        """The model with the declared bodies."""
        return OriginalModel(_given(climbed), self._examples)


def _given(climbed: ClimbedAll) -> ir.Model:
    assert climbed.onnx is not None
    return climbed.onnx.given
