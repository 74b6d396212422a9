"""A malicious bundle for every route, used in every way that needs no consent: its payload never runs.

The table is the one in SECURITY.md, which says what happens to each. That the payloads do run with consent, and that
every kind of tampering with a signature is found, is shown in test_trust.py and test_signing.py.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import pickle
import re
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from places import ROOT
from strangers import (
    MANIFEST,
    PASSED,
    PROGRAM,
    RELU,
    hostile_program,
    kernels,
    make,
    of_a_stranger,
    rewritten,
    with_entry,
    with_kernels,
)

import opbridge
from opbridge.bundle.bundle import read_bundle
from opbridge.errors import OpbridgeError
from opbridge.report.written import FORMATS, render

pytestmark = pytest.mark.newest

X = np.array([-1, 2], np.float32)


@dataclasses.dataclass(frozen=True)
class Attack:
    """What a malicious bundle is made of: an empty folder, a hostile library, and the file that its payload writes."""

    folder: Path
    library: Path
    payload: Path

    @property
    def bundle(self) -> Path:
        """Where the bundle is made."""
        return self.folder / "b"


class _Payload:
    def __reduce__(self) -> tuple[object, ...]:
        return open, (os.environ["OPBRIDGE_TEST_PAYLOAD"], "w")


def _pickled_program(attack: Attack) -> Path:
    return make(attack.bundle, files={"reference.pt2": pickle.dumps(_Payload())})


def _expression(attack: Attack) -> Path:
    program = hostile_program(attack.folder / "program.pt2", attack.payload)
    attack.payload.unlink(missing_ok=True)
    return make(attack.bundle, files={"reference.pt2": program})


def _module(attack: Attack) -> Path:
    (attack.folder / "evil.py").write_text(PROGRAM)
    return make(attack.bundle, {"entry": "evil:model"})


def _unlisted_library(name: str) -> Callable[[Attack], Path]:
    def build(attack: Attack) -> Path:
        shutil.copy(attack.library, attack.folder / "evil.so")
        bundle = make(attack.bundle)
        shutil.copy(attack.library, bundle / "evil.so")
        return rewritten(bundle, lambda manifest: manifest.update(kernels(True, name)))

    return build


def _engine_file(attack: Attack) -> Path:
    models = [{"file": "model.onnx", "engines": ["tvm", "onnxruntime"], "opset": 20, "ir_version": 10}]
    return make(attack.bundle, {"models": models}, files={"model.tvm.so": attack.library.read_bytes()})


def _version(attack: Attack) -> Path:
    return make(attack.bundle, {"models": [{**MANIFEST["models"][0], "engines": ["onnxruntime==1.2.3"]}]})


def _added(name: str, add: Callable[[Path], object]) -> Callable[[Attack], Path]:
    def build(attack: Attack) -> Path:
        bundle = make(attack.bundle)
        add(bundle / name)
        return bundle

    return build


def _outside(attack: Attack) -> Path:
    listed = {"sha256": "0", "bytes": 0}
    return rewritten(make(attack.bundle), lambda manifest: manifest["files"].update({"../x": listed}))


def _changed(name: str, content: str) -> Callable[[Attack], Path]:
    def build(attack: Attack) -> Path:
        bundle = make(attack.bundle, verification=lambda _: {**PASSED, "verdict": "failed"})
        (bundle / name).write_text(content)
        return bundle

    return build


def _far_weights(attack: Attack) -> Path:
    (attack.folder / "secret").write_bytes(bytes(8))
    weight = onnx.TensorProto(name="w", data_type=1, dims=[2], data_location=onnx.TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value="../secret")
    model = onnx.ModelProto()
    model.CopyFrom(RELU)
    model.graph.initializer.append(weight)
    content = model.SerializeToString()
    return make(attack.bundle, {"models": [{**MANIFEST["models"][0], "file": "far.onnx"}]}, files={"far.onnx": content})


def _pickled_arrays(attack: Attack) -> Path:
    stream = io.BytesIO()
    np.savez(stream, x0=np.array([_Payload()], object))
    return make(attack.bundle, files={"initial_state.npz": stream.getvalue(), "failing_input.npz": stream.getvalue()})


def _marks_of_another(attack: Attack) -> Path:
    mine = make(attack.folder / "mine")
    bundle = with_kernels(attack.bundle, attack.library)
    shutil.copy(mine / "marks.json", bundle / "marks.json")
    return bundle


def _code_as_a_name(attack: Attack) -> Path:
    """A model that the engine refuses, with an operator whose name ends a string and goes on with code."""
    name = f'Evil"""; open({str(attack.payload)!r}, "w").close(); """'
    opsets = [onnx.helper.make_opsetid("", 20), onnx.helper.make_opsetid("evil", 1)]
    body = [onnx.helper.make_node("DeformConv", ["p", "p", "p"], ["q"])]
    node = onnx.helper.make_node(name, ["x0"], ["y0"], domain="evil")
    graph = onnx.helper.make_graph([node], "g", RELU.graph.input, RELU.graph.output)
    function = onnx.helper.make_function("evil", name, ["p"], ["q"], body, opsets[:1])
    model = onnx.helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=10)
    bundle = make(attack.bundle, {"models": [{**MANIFEST["models"][0], "file": "evil.onnx"}]}, files={
        "evil.onnx": model.SerializeToString()
    })  # fmt: skip
    return bundle


ROUTES: dict[str, tuple[Callable[[Attack], Path], str, str]] = {
    "a pickle as `reference.pt2`": (_pickled_program, "not read", "reference.pt2, a saved program"),
    "an expression in `reference.pt2`": (_expression, "not read", "reference.pt2, a saved program"),
    "an `entry` that is a module": (_module, "not imported", "names evil:model as the model to compare with"),
    "an `entry_path` of a file": (lambda a: with_entry(a.bundle), "not imported", "names evil.py:model as the model"),
    "compiled kernels": (lambda a: with_kernels(a.bundle, a.library), "function bodies run", "function bodies run"),
    "compiled kernels without function bodies": (
        lambda a: with_kernels(a.bundle, a.library, optional=False),
        "refused",
        "needs the bundle's kernels",
    ),
    "a kernel library without a hash": (_unlisted_library("evil.so"), "refused", "'evil.so' without its sha256"),
    "a kernel library `../evil.so`": (_unlisted_library("../evil.so"), "refused", "'../evil.so' without its sha256"),
    "marks of another bundle": (_marks_of_another, "function bodies run", "function bodies run"),
    "a compiled model of TVM": (_engine_file, "refused", "model.tvm.so is machine code for tvm"),
    "a version of an engine": (_version, "not installed", "which opbridge would install"),
    "a file that is not listed": (
        _added("numpy.py", lambda file: file.write_text(PROGRAM)),
        "refused",
        "numpy.py in it is not listed",
    ),
    "a link": (
        _added("failing_input.npz", lambda file: file.symlink_to("/etc/hosts")),
        "refused",
        "failing_input.npz in it is a link",
    ),
    "a pipe": (_added("report.html", lambda file: os.mkfifo(file)), "refused", "report.html in it is neither a file"),
    "a listed file outside of the folder": (
        _outside,
        "refused",
        "'../x', which is not a plain path inside of the bundle",
    ),
    "weights outside of the folder": (_far_weights, "refused", "far.onnx"),
    "code as a name in the model": (_code_as_a_name, "text in the script of `reduce`", "Evil'''; open("),
    "pickled arrays": (_pickled_arrays, "not read", ""),
    "a changed model": (_changed("model.onnx", "another"), "refused", "model.onnx has 7 bytes instead of"),
    "a changed `verification.json`": (
        _changed("verification.json", json.dumps(PASSED)),
        "shown as a claim",
        "Claimed, not checked here",
    ),
}
"""By route: the bundle, what happens to it (as in SECURITY.md), and a text that the user reads."""


def uses(bundle: Path) -> list[str]:
    """Use a bundle in every way without consent, and return what the user reads."""
    told: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for engine in ("onnxruntime", "tvm"):
            with _told(told):
                assert opbridge.load(bundle, engine)(X)[0].tolist() == [0, 2]
        for options in ({}, {"reference": str(bundle / "model.onnx")}):
            with _told(told):
                opbridge.verify(bundle, engines=["none"], **options)
        with _told(told):
            opbridge.verify(bundle)
        with _told(told):
            opbridge.compare(bundle, bundle)
        if (bundle / "evil.onnx").exists():
            opbridge.reduce(bundle / "evil.onnx", path=bundle.with_name("small"))
            told.append((bundle.with_name("small") / "reproduce.py").read_text())
        for form in FORMATS:
            with _told(told):
                read = read_bundle(bundle)
                assert read.verified is None
                assert read.recorded_path is None
                told.append(render(read, form))
    return [*told, *(str(item.message) for item in caught)]


@contextlib.contextmanager
def _told(told: list[str]):
    try:
        yield
    except OpbridgeError as error:
        told.append(error.message if error.fix else "an error without a fix")


@pytest.mark.quick("reference.pt2", "kernel", "link", "pipe")
@pytest.mark.parametrize("route", ROUTES)
def test_no_route_runs_anything(
    route: str, tmp_path: Path, library: Path, payload: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    build, _, message = ROUTES[route]
    bundle = build(Attack(tmp_path, library, payload))
    if "changed" not in route:
        with contextlib.suppress(OpbridgeError):
            of_a_stranger(bundle)
    payload.unlink(missing_ok=True)
    told = uses(bundle)
    assert not payload.exists()
    assert any(message in text for text in told), told
    assert "an error without a fix" not in told


def test_security_says_what_happens() -> None:
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", (ROOT / "SECURITY.md").read_text(), flags=re.MULTILINE)
    assert {route: outcome for route, (_, outcome, _) in ROUTES.items()}.items() <= dict(rows).items()
