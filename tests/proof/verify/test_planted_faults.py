"""Every planted fault is caught in its mode, and its node named; sound models pass, however ill-conditioned."""

from __future__ import annotations

from pathlib import Path

import fault_models
import numpy as np
import onnx_ir as ir
import pytest
from planted_faults import FAULTS, Fault, faulty_bundle, named_node, sound_bundle
from sound_models import SOUND

import opbridge
from opbridge import engines
from opbridge.capture.entry import Entry
from opbridge.engines.process.isolation import IsolatedSession
from opbridge.proof.verify.reference_onnx import OnnxReference
from opbridge.proof.verify.verification import Verification
from opbridge.proof.verify.verify import verify

pytestmark = pytest.mark.newest

MODELS = ("counts", "detector", "half_norm", "image", "mixer", "sequence", "steps", "suppressor")
QUICK = (
    "a sum of 1e6 terms",
    "a chaotic map of 60 steps",
    "differences that cancel",
    "near ties of top-k and argmax",
)
"""The others take longer: they are in benchmarks/proof.py, with these."""
MOST_VERIFICATIONS = 20


@pytest.mark.quick("size 1 only", every=12)
@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault.deterministic], ids=lambda fault: fault.name)
def test_fault_is_caught_and_bisected(fault: Fault, tmp_path: Path) -> None:
    bundle, entry, nodes = faulty_bundle(fault, tmp_path / "bundle")
    found = opbridge.verify(bundle.path, reference=entry, **fault.options)
    assert found.verdict == "failed", found.summary()
    assert named_node(found, nodes) == fault.said


@pytest.mark.slow
def test_fault_of_some_runs_is_called_not_deterministic(tmp_path: Path) -> None:
    fault = next(fault for fault in FAULTS if not fault.deterministic)
    bundle, entry, nodes = faulty_bundle(fault, tmp_path / "bundle")
    said = set()
    for _ in range(MOST_VERIFICATIONS):
        found = opbridge.verify(bundle.path, reference=entry)
        said.add(named_node(found, nodes))
        if fault.said in said:
            return
    pytest.fail(f"in {MOST_VERIFICATIONS} verifications bisection only said: {', '.join(sorted(said))}")


@pytest.mark.quick("mixer", every=3)
@pytest.mark.parametrize("name", MODELS)
def test_model_without_the_faults_passes(name: str) -> None:
    bundle, entry = sound_bundle(getattr(fault_models, name))
    found = opbridge.verify(bundle.path, reference=entry)
    assert found.passed, found.summary()
    assert found.divergences == ()


@pytest.mark.quick(every=0)
@pytest.mark.parametrize("name", QUICK)
def test_ill_conditioned_model_passes(name: str, tmp_path: Path) -> None:
    entry = SOUND[name]()
    bundle = opbridge.export(
        entry.model, entry.args, path=tmp_path / "bundle", dynamic_shapes=entry.dynamic_shapes, verify=False
    )
    found = opbridge.verify(bundle.path, reference=entry)
    assert found.passed, found.summary()


def verified_against_itself(original: ir.Model, file: Path, entry: Entry) -> Verification:
    """The model in a file on ONNX Runtime, compared with an ONNX model that takes the entry's inputs."""
    names = [str(value.name) for value in original.graph.inputs]
    examples = {name: np.asarray(array) for name, array in zip(names, entry.args, strict=True)}
    with (
        OnnxReference(original, engines.get("onnxruntime"), examples=examples) as reference,
        IsolatedSession("onnxruntime", file) as session,
    ):
        return verify(reference, session, engine="onnxruntime")


NEEDS_EXAMPLES = (
    "float16 overflows where float32 is due",
    "ties are rounded away from zero",
    "integer division truncates instead of flooring",
)
"""Faults that show on inputs like the example's only: large, halves, and negative."""


@pytest.mark.quick("ties")
@pytest.mark.parametrize("name", NEEDS_EXAMPLES)
def test_fault_is_caught_against_an_onnx_model(name: str, tmp_path: Path) -> None:
    fault = next(fault for fault in FAULTS if fault.name == name)
    assert fault.plant is not None
    bundle, entry = sound_bundle(fault.model)
    wrong = ir.load(bundle.model_file("onnxruntime"))
    fault.plant(wrong)
    ir.save(wrong, tmp_path / "wrong.onnx")
    found = verified_against_itself(ir.load(bundle.model_file("onnxruntime")), tmp_path / "wrong.onnx", entry)
    assert found.verdict == "failed", found.summary()


@pytest.mark.quick(every=2)
@pytest.mark.parametrize("name", ["a chaotic map of 60 steps", "near ties of top-k and argmax"])
def test_ill_conditioned_model_passes_against_itself(name: str, tmp_path: Path) -> None:
    entry = SOUND[name]()
    bundle = opbridge.export(
        entry.model, entry.args, path=tmp_path / "bundle", dynamic_shapes=entry.dynamic_shapes, verify=False
    )
    file = bundle.model_file("onnxruntime")
    found = verified_against_itself(ir.load(file), file, entry)
    assert found.passed, found.summary()
