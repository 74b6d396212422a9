"""Fuzzes the readers of files: bundles, their manifests and side files, ``.onnx`` models, arrays, kernel libraries.

Each area starts from a valid file and changes it: bytes of it, or values in its JSON data, whose hash is then made
right again. A reader must succeed or raise an :class:`~opbridge.errors.OpbridgeError` within a few seconds; anything
else is a failure, which Hypothesis reduces and prints. The exit code is 1 if there was one. Engines are not fuzzed.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from onnx import TensorProto, helper, numpy_helper

from opbridge import engines
from opbridge.bundle.bundle import read_bundle
from opbridge.bundle.checks import manifest_hash, to_json
from opbridge.bundle.write import write_bundle
from opbridge.cli._arrays import read_arrays
from opbridge.engines.onnx_specs import onnx_specs
from opbridge.errors import OpbridgeError
from opbridge.kernels.library import check_file
from opbridge.onnx_model.read import read_model
from opbridge.proof.verify.verification import CaseResult, Comparison, Verification
from opbridge.report.written import FORMATS, render

__all__ = ["AREAS", "Tally", "fuzz"]

_EXAMPLES = 25
_SLOW = 10.0
"""The seconds that a reader may take for one of these small files."""


@dataclasses.dataclass
class Tally:
    """What happened in one area."""

    tried: int = 0
    refused: int = 0
    failures: list[str] = dataclasses.field(default_factory=list)


# What files are changed to.

_NAMES = st.sampled_from(
    ["", ".", "..", "/", "../evil.so", "model.onnx", "bundle.json", "a\0b", "é", "\u202e", "\ud800", "x" * 5000]
)
_NUMBERS = st.sampled_from([-1, 0, 1, 2**31, 2**63, 2**70, -(2**70), 10**400, 0.5, 1e308, float("nan"), float("-inf")])
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | _NAMES | _NUMBERS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | _NAMES, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def changed_data(draw: st.DrawFn, original: Any) -> Any:
    """JSON data in which one to three values were replaced, removed, added or nested deeply."""
    data = copy.deepcopy(original)
    for _ in range(draw(st.integers(1, 3))):
        holder, key = None, None
        place = data
        while isinstance(place, dict | list) and place and (holder is None or draw(st.integers(0, 3))):
            holder, key = place, draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
            place = holder[key]
        what = draw(st.sampled_from(["replace", "replace", "replace", "remove", "add", "deep"]))
        if holder is None or what == "replace":
            value = draw(_VALUES)
            if holder is None:
                data = value
            else:
                holder[key] = value
        elif what == "remove":
            del holder[key]
        elif what == "add" and isinstance(holder, dict):
            holder[draw(st.text(max_size=5) | _NAMES)] = draw(_VALUES)
        elif what == "deep":
            for _ in range(draw(st.sampled_from([10, 300, 900]))):
                holder[key] = [holder[key]]
    return data


@st.composite
def changed_bytes(draw: st.DrawFn, original: bytes) -> bytes:
    """Bytes of which a few were replaced, inserted, removed or repeated, or the end is missing."""
    content = bytearray(original)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(content)))
        what = draw(st.sampled_from(["replace", "replace", "insert", "remove", "repeat", "cut"]))
        if what == "replace":
            new = draw(st.binary(min_size=1, max_size=8))
            content[at : at + len(new)] = new
        elif what == "insert":
            content[at:at] = draw(st.binary(min_size=1, max_size=8))
        elif what == "remove":
            del content[at : at + draw(st.integers(1, 16))]
        elif what == "repeat":
            content[at:at] = content[at : at + draw(st.integers(1, 64))]
        else:
            del content[at:]
    return bytes(content)


# Valid files.


def _model() -> onnx.ModelProto:
    weights = [
        numpy_helper.from_array(np.arange(4, dtype=np.float32), "w"),
        numpy_helper.from_array(np.array([[1, 2]], np.int64), "i"),
    ]
    nodes = [
        helper.make_node("Add", ["x", "w"], ["a"], name="add"),
        helper.make_node("Twice", ["a"], ["b"], name="twice", domain="mylib"),
        helper.make_node("Gather", ["b", "i"], ["y"], name="gather", axis=1),
    ]
    body = [helper.make_node("Add", ["p", "p"], ["q"])]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("mylib", 1)]
    function = helper.make_function("mylib", "Twice", ["p"], ["q"], body, opsets[:1])
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 1, 2])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=10)


def _verification() -> dict[str, Any]:
    comparison = Comparison("y", "example", "within budget", 1e-7, 1e-7, 1.5, 1.25, 0.2, 7.5, "")
    case = CaseResult("example", {"n": 2}, "passed", True, None)
    return Verification("onnxruntime", "passed", (case,), (comparison,), {"runs": 0.1}, 7).to_dict()


_SOURCES = {
    "entry_path": None,
    "nodes": {"add": "a.py:1"},
    "targets": {"add": "aten::add.Tensor"},
    "captured": {"add": "add"},
    "values": {"a": ["add", 0]},
    "operators": {"aten::add.Tensor": ["a.py:1"]},
    "findings": [
        {"code": "no-mapping", "target": "aten::add", "message": "a", "fix": "b", "severity": "warning", "rung": "",
         "mended": True, "sources": ["a.py:1"]}
    ],
}  # fmt: skip


def _bundle(folder: Path) -> Path:
    manifest = {
        "entry": "a.py:model",
        "versions": {"torch": "2.15.0", "onnxruntime": "1.31.1"},
        "models": [{"file": "model.onnx", "engines": ["onnxruntime"], "opset": 18, "ir_version": 10}],
        "inputs": [{"name": "x", "dtype": "float32", "shape": ["n", 4]}],
        "outputs": [{"name": "y", "dtype": "float32", "shape": ["n", 1, 2]}],
        "operators": [{"target": "aten::add.Tensor", "rung": "native", "provider": "torch", "count": 1, "detail": ""}],
        "adaptations": {"onnxruntime": [{"what": "a", "nodes": ["add"]}]},
        "kernels": [
            {"engine": "onnxruntime", "file": "kernels/k.so", "platform": "linux-x86_64", "native": False,
             "operators": ["mylib::Twice"], "optional": True}
        ],
        "opset_reason": "requested",
        "dynamic": {"n": [1, None]},
        "weights": "0",
        "state": {"a": "0"},
    }  # fmt: skip

    def write(place: Path) -> None:
        (place / "model.onnx").write_bytes(_model().SerializeToString())
        (place / "kernels").mkdir()
        (place / "kernels" / "k.so").write_bytes(b"kernels")

    made = write_bundle(folder / "b", manifest, write, sources=_SOURCES, verification=lambda _: _verification())
    return made.path


# The areas: what is changed, and who reads it.

Reader = Callable[[Any], object]


def _use(folder: Path) -> None:
    """Do with a bundle whatever runs none of it."""
    bundle = read_bundle(folder)
    for _ in bundle.inputs, bundle.outputs, bundle.verified, bundle.recorded_path:
        pass
    for form in FORMATS:
        render(bundle, form)
    for name in bundle.engines():
        bundle.loadable(engines.get(name))
        bundle.runs(name)


def _manifest(scratch: Path) -> tuple[st.SearchStrategy[Any], Reader]:
    folder = _bundle(scratch)
    file = folder / "bundle.json"

    def read(data: Any) -> None:
        if isinstance(data, dict):
            with contextlib.suppress(TypeError, ValueError, RecursionError):
                data["sha256"] = manifest_hash(data)
        file.write_text(_text(data))
        _use(folder)

    return changed_data(json.loads(file.read_text())), read


def _side_file(name: str) -> Callable[[Path], tuple[st.SearchStrategy[Any], Reader]]:
    def area(scratch: Path) -> tuple[st.SearchStrategy[Any], Reader]:
        folder = _bundle(scratch)

        def read(data: Any) -> None:
            (folder / name).write_text(_text(data))
            _use(folder)

        return changed_data(json.loads((folder / name).read_text())), read

    return area


def _text(data: Any) -> str:
    try:
        return to_json(data)
    except (TypeError, ValueError, RecursionError):
        return json.dumps(data, default=str)


def _json_bytes(scratch: Path) -> tuple[st.SearchStrategy[Any], Reader]:
    folder = _bundle(scratch)
    file = folder / "bundle.json"
    return changed_bytes(file.read_bytes()), lambda content: (file.write_bytes(content), _use(folder))


def _of_bytes(original: bytes, suffix: str, read: Reader) -> Callable[[Path], tuple[st.SearchStrategy[Any], Reader]]:
    def area(scratch: Path) -> tuple[st.SearchStrategy[Any], Reader]:
        file = scratch / f"file{suffix}"
        return changed_bytes(original), lambda content: (file.write_bytes(content), read(file))

    return area


def _arrays(scratch: Path) -> tuple[st.SearchStrategy[Any], Reader]:
    file = scratch / "arrays.npz"
    np.savez(file, x=np.ones((2, 3), np.float32), y=np.array(["a", "b"]))
    content = file.read_bytes()
    return changed_bytes(content), lambda changed: (file.write_bytes(changed), read_arrays([str(file)]))


def _library() -> bytes:
    """The beginning of a shared library, with its table of segments: what is read before the loader opens it."""
    head = bytearray(256)
    head[:20] = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00\x3e\x00"
    head[32:40] = (128).to_bytes(8, "little")
    head[54:58] = (56).to_bytes(2, "little") + (2).to_bytes(2, "little")
    return bytes(head)


AREAS: dict[str, Callable[[Path], tuple[st.SearchStrategy[Any], Reader]]] = {
    "manifest": _manifest,
    "manifest bytes": _json_bytes,
    "verification": _side_file("verification.json"),
    "sources": _side_file("sources.json"),
    "marks": _side_file("marks.json"),
    "model": _of_bytes(_model().SerializeToString(), ".onnx", lambda file: read_model(file)),
    "model specs": _of_bytes(_model().SerializeToString(), ".onnx", lambda file: onnx_specs(file)),
    "arrays": _arrays,
    "library": _of_bytes(_library(), ".so", lambda file: check_file(file)),
}


def fuzz(area: str, *, seconds: float = float("inf"), examples: int | None = None, first_seed: int = 0) -> Tally:
    """Fuzz one area until the time is over, or for a number of examples.

    Args:
        area: A key of :data:`AREAS`.
        seconds: The time.
        examples: The number of examples; None for no limit.
        first_seed: The seed of the first round; each round has the next one.
    """
    tally = Tally()
    ends = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="opbridge-fuzz-") as scratch:
        strategy, read = AREAS[area](Path(scratch))

        def check(data: Any) -> None:
            tally.tried += 1
            started = time.monotonic()
            try:
                read(data)
            except OpbridgeError as error:
                tally.refused += 1
                if not (error.message and error.fix):
                    raise AssertionError("an error without a message or a fix") from error
            assert time.monotonic() - started < _SLOW, "it took too long"

        number = first_seed
        while time.monotonic() < ends and (examples is None or tally.tried < examples) and not tally.failures:
            configured = settings(
                max_examples=min(_EXAMPLES, examples or _EXAMPLES),
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
                phases=(Phase.generate, Phase.shrink),
            )
            try:
                seed(number)(configured(given(strategy)(check)))()
            except (Exception, Flaky):
                tally.failures.append(f"seed {number}:\n{traceback.format_exc()}")
            number += 1
    return tally
