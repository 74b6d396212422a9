"""Every finding: real failures of torch.export, what it says of captured programs, and the form of its file."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import capture_failure_models as models
import pytest
import torch
from capture_failure_models import CASES, Case
from torch import nn

from opbridge import findings
from opbridge.capture.capture import capture
from opbridge.capture.failures import CaptureFailure, capture_finding, explain_capture_failure
from opbridge.catalog.declare.catalog import Catalog
from opbridge.errors import CaptureError, InputError, OpbridgeError
from opbridge.findings.base import Failure, Finding
from opbridge.torch_graph.sources import SourceLine, source_of_function

pytestmark = pytest.mark.newest

X = models.X


def export_error(case: Case) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - each case has a type of its own
        torch.export.export(case.model, case.args, case.kwargs or None, dynamic_shapes=case.dynamic_shapes)
    return caught.value


def explained(case: Case) -> OpbridgeError:
    error = export_error(case)
    return explain_capture_failure(error, case.model, case.args, case.kwargs, dynamic_shapes=case.dynamic_shapes)


def line_of(case: Case) -> str:
    file = Path(models.__file__)
    lines = file.read_text().splitlines()
    number = next(index for index, line in enumerate(lines, 1) if line.endswith(f"# {case.name}"))
    return str(SourceLine(str(file.resolve()), number))


@pytest.mark.quick("cond aliases", every=3)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_failure_is_explained_in_one_line(case: Case) -> None:
    error = explained(case)
    line = line_of(case) if case.has_source else ""
    assert case.message.format(line=line) in error.message
    assert case.fix in error.fix
    assert line in error.message
    assert "\n" not in error.message
    assert len(error.message) < 400
    assert type(error) is InputError if case.input_error else isinstance(error, CaptureError)


@pytest.mark.quick("cond mutates", every=3)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_failure_has_its_code_source_and_details(case: Case) -> None:
    error = export_error(case)
    found = capture_finding(error, case.model, case.args, case.kwargs, dynamic_shapes=case.dynamic_shapes)
    assert found.code == case.code
    assert found.severity == "error"
    if case.has_source and not case.input_error:
        assert found.sources == (line_of(case),)
    raised = explain_capture_failure(error, case.model, case.args, case.kwargs, dynamic_shapes=case.dynamic_shapes)
    assert raised.details is not None
    assert type(error).__name__ in raised.details
    assert str(error).splitlines()[0] in raised.details


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_only_one_finding_recognises_a_failure_by_its_own_signs(case: Case) -> None:
    failure = Failure(export_error(case), case.model, case.args, case.kwargs, case.dynamic_shapes)
    specific = [module for module in findings.modules() if hasattr(module, "explain") and not hasattr(module, "ORDER")]
    found = [finding.code for finding in (module.explain(failure) for module in specific) if finding is not None]
    fallbacks = {"model-fails", "failing-fake", "capture-failed"}
    assert found[:1] == ([] if case.code in fallbacks else [case.code])
    assert len(found) <= 1


def test_details_hold_the_graph_and_the_data_is_json() -> None:
    error = explained(CASES[0])
    assert isinstance(error, CaptureFailure)
    assert error.details is not None
    assert "torch.ops.aten.index.Tensor" in error.details
    data = json.loads(json.dumps(error.to_dict()))
    assert data["error"] == "CaptureError"
    assert data["code"] == "data-dependent-guard"
    assert data["sources"] == [line_of(CASES[0])]


def test_an_error_of_opbridge_comes_back_as_it_is() -> None:
    error = InputError("x", fix="y")
    assert explain_capture_failure(error, nn.Identity()) is error


@pytest.mark.parametrize("name", ["constant size", "unnamed constant size"])
def test_the_line_that_fixes_a_dynamic_size_is_named(name: str) -> None:
    case = next(case for case in CASES if case.name == name)
    with pytest.raises(CaptureFailure) as caught:
        capture(case.model, case.args, dynamic_shapes=case.dynamic_shapes)
    line = source_of_function(type(case.model).forward)
    place = str(dataclasses.replace(line, line=line.line + 1))
    assert caught.value.message.endswith(f"It is fixed at {place}: return x + torch.ones(3, 4)")
    assert caught.value.finding.sources == (place,)


def test_without_dynamic_shapes_the_dimension_is_named_as_torch_names_it() -> None:
    case = next(case for case in CASES if case.name == "constant size")
    found = capture_finding(export_error(case), case.model, case.args)
    assert found.message == "Declared dynamic, but the model supports only size 3: the dimension 'n'."


@pytest.mark.sweep
def test_torchvision_ssd_is_explained_in_one_line() -> None:
    detection = pytest.importorskip("torchvision.models.detection")
    ssd = detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=5).eval()
    case = Case("ssd", "", ssd, "", "", args=([torch.rand(3, 32, 32)],))
    error = explained(case)
    assert re.fullmatch(
        r"`if boxes\.numel\(\) > \(4000 if .+\)` at torchvision/ops/boxes\.py:\d+ depends on a size that is known only "
        r"at run time\.",
        error.message,
    )
    assert "@opbridge.rewrite('torchvision.ops.boxes.batched_nms')" in error.fix


def test_a_library_called_by_the_users_model_gives_both_lines() -> None:
    boxes = pytest.importorskip("torchvision.ops.boxes")

    class Head(nn.Module):
        def forward(self, x):
            keep = x[:, 0] > 0
            return boxes.batched_nms(x[keep], x[keep, 0], x[keep, 0].long(), 0.5)

    error = explained(Case("head", "", Head(), "", ""))
    assert re.search(r" at torchvision/ops/boxes\.py:\d+ \(called from \S*test_findings\.py:\d+\) ", error.message)


class _Checked(nn.Module):
    def forward(self, x):
        y = x[x > 0]
        torch._check(y.numel() > 4)
        if y.numel() > 4:
            return y.sum()
        return y


class _Branched(nn.Module):
    def forward(self, x):
        y = x[x > 0]
        return torch.cond(y.numel() > 4, lambda y: y.sum(), lambda y: y.max(), (y,))


class _Looped(nn.Module):
    def forward(self, x):
        return torch.while_loop(lambda x: x.sum() < 100, lambda x: (x + 1,), (x,))


class _Guarded(nn.Module):
    def forward(self, x):
        if not torch.compiler.is_exporting():
            assert x.min() > -100
        return x[: x.max().to(torch.int64).item()]


@pytest.mark.parametrize("model", [_Checked(), _Branched(), _Looped(), _Guarded()], ids=lambda m: type(m).__name__)
def test_the_fixes_that_are_printed_work(model: nn.Module) -> None:
    assert torch.export.export(model, (X,)).graph_module(X) is not None


def test_running_the_model_leaves_it_as_it_was() -> None:
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("steps", torch.zeros(1))

        def forward(self, x):
            self.steps.add_(1)
            self.steps = self.steps + torch.rand(1)
            self.last = x
            x.mul_(2)
            raise ValueError("always")

    model, x = Counts(), X.clone()
    buffer, state = model.steps, torch.random.get_rng_state()
    found = capture_finding(ValueError("always"), model, (x,))
    assert found.code == "model-fails"
    assert model.steps is buffer
    assert buffer.item() == 0
    assert not hasattr(model, "last")
    assert torch.equal(x, X)
    assert torch.equal(torch.random.get_rng_state(), state)


class _Stateful(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.5)
        self.register_buffer("steps", torch.zeros(4))

    def forward(self, x, unused):
        self.steps.add_(1)
        x[0].mul_(2)
        return self.drop(self.norm(x)) + torch.rand_like(x) + self.steps


def program_of(model: nn.Module, *args: torch.Tensor, **options) -> torch.export.ExportedProgram:
    return torch.export.export(model, args, **options)


@pytest.mark.parametrize("decomposed", [False, True])
def test_a_captured_program_is_searched(decomposed: bool) -> None:
    program = program_of(_Stateful().eval(), X.clone(), X)
    found = list(findings.in_program(program.run_decompositions() if decomposed else program))
    assert {(finding.code, finding.target) for finding in found} == {
        ("buffer-mutation", "steps"),
        ("input-mutation", "x"),
        ("random-operator", "aten::rand_like"),
        ("unused-input", "unused"),
    }


def test_messages_about_a_captured_program() -> None:
    by_code = {finding.code: finding for finding in findings.in_program(program_of(_Stateful().train(), X.clone(), X))}
    assert "The model changes its input 'x' in place at " in by_code["input-mutation"].message
    assert by_code["unused-input"].message == "The input 'unused' is never used: no output depends on it."
    assert "draws random numbers" in by_code["random-operator"].message
    training = by_code["training-mode"]
    assert training.message.startswith("The model is in training mode: aten::batch_norm, aten::dropout at ")
    assert training.fix.startswith("call model.eval() before the export")
    assert training.severity == "warning"
    assert all("test_findings.py:" in source for source in training.sources)
    steps = next(f for f in findings.in_program(program_of(_Stateful().eval(), X.clone(), X)) if f.target == "steps")
    assert steps.message.startswith("The model changes its buffer 'steps' at ")
    assert steps.message.endswith("; in the ONNX model it has its initial value in every run.")


def test_a_dimension_of_which_pytorch_accepts_other_sizes() -> None:
    with pytest.raises(CaptureFailure) as caught:
        capture(models.BranchOnSize(), X, dynamic_shapes={"x": {0: "n"}})
    found = caught.value.finding
    assert (found.code, found.target) == ("restricted-dimension", "dimension 0 of x")
    assert found.message.startswith(
        "Declared dynamic, but captured for some sizes only: dimension 0 of x (n). PyTorch accepts the size 6; the "
        "captured program requires n <= 5 at "
    )
    assert found.fix.startswith("declare torch.export.Dim('n', max=5) if your sizes are within this range; ")
    assert "capture_failure_models.py:" in found.sources[0]


def test_a_narrowed_dimension_is_reported() -> None:
    program = program_of(models.BranchOnSize(), X, dynamic_shapes={"x": {0: torch.export.Dim.DYNAMIC}})
    (found,) = findings.in_program(program)
    assert found.code == "narrowed-dimension"
    assert found.message == "Dimension 0 of the input 'x' can vary only from 2 to 5."
    free = program_of(models.AddsOne(), X, dynamic_shapes={"x": {0: torch.export.Dim.DYNAMIC}})
    assert list(findings.in_program(free)) == []


AT = ("model.py:7",)
MADE = {
    "converted-control-flow": (
        {"operators": (("If", "model.py:12"), ("Loop", "model.py:30"), ("If", "model.py:20"))},
        "Control flow that depends on the values of tensors became If (model.py:12, model.py:20), Loop (model.py:30).",
        "nothing is to be done",
    ),
    "unconverted-control-flow": (
        {"place": "model.py:12", "reason": "'y' is None\nthere", "fix": "make it a tensor."},
        "The control flow at model.py:12 depends on a tensor's value and can't be converted: 'y' is None there.",
        "make it a tensor.",
    ),
    "unchecked-condition": (
        {"source": "piq/utils/common.py:100", "statement": "assert x.min() >= 0"},
        "The model does not check `assert x.min() >= 0` (piq/utils/common.py:100): an ONNX model can't raise an error.",
        "check them before they are given to the model",
    ),
    "untried-condition": (
        {"source": "model.py:7"},
        "The condition on sizes at model.py:7 was not checked at other sizes: the time limit was reached.",
        "verify the bundle with inputs of the sizes that you use",
    ),
    "unmapped-operator": (
        {"target": "m::op", "count": 3, "sources": AT},
        "torch.onnx has no mapping of m::op to ONNX (used 3 times, first at model.py:7).",
        "define it in torch operators with @opbridge.decomposition('m::op')",
    ),
    "no-kernel": (
        {
            "target": "aten::conv2d",
            "node": "Conv-11 (double)",
            "engine": "onnxruntime 1.31",
            "reason": "no\nkernel",
            "sources": AT,
        },
        "onnxruntime 1.31 has no kernel for Conv-11 (double), which aten::conv2d at model.py:7 becomes: no kernel",
        "use another dtype (model.float()) or a newer onnxruntime",
    ),
    "inexpressible-node": (
        {
            "target": "aten::bernoulli",
            "node": "ai.onnx::Bernoulli",
            "opset": 11,
            "engine": "onnxruntime 1.31",
            "reason": "it has no\nsuch operator",
            "sources": AT,
        },
        "Opset 11, for onnxruntime 1.31, can't express ai.onnx::Bernoulli, which aten::bernoulli at model.py:7 "
        "becomes: it has no such operator",
        "use a newer --opset or a newer version of the engine",
    ),
    "refused-node": (
        {
            "target": "acme::Scale",
            "engine": "onnxruntime 1.31",
            "reason": "no\nkernel",
            "sources": ("scale_1", "scale_2"),
        },
        "onnxruntime 1.31 refuses acme::Scale (node scale_1 and 1 more): no kernel",
        "define acme::Scale in torch operators with @opbridge.body_for('acme::Scale')",
    ),
    "no-compiler": (
        {"target": "mylib::add", "reason": "There is no g++.", "fix": "install g++.", "has_body": True, "sources": AT},
        "The kernel of mylib::add is not built, and mylib::add runs its function body, which may be slower: "
        "There is no g++.",
        "install g++. Then export again.",
    ),
    "mapping-failed": (
        {
            "target": "m::op",
            "error": ValueError("rank\nunknown"),
            "provider": "user",
            "declared_at": "ops.py:3",
            "sources": AT,
        },
        "The mapping of m::op at model.py:7 to ONNX, yours (ops.py:3), fails: ValueError: rank",
        "correct the mapping (ops.py:3).",
    ),
    "opset-raised": (
        {"target": "torchvision::deform_conv2d", "opset": 19, "instead_of": 18},
        "torchvision::deform_conv2d needs opset 19; the rest of the model needs 18.",
        "nothing to do; for an engine that supports only opset 18",
    ),
    "fake-disagrees": (
        {"target": "m::op", "output": 0, "says": "float32 of shape (3,)", "returns": "float32 of shape (4,)"},
        "The fake of m::op disagrees with the operator: output 0 is float32 of shape (4,), but its fake returns "
        "float32 of shape (3,).",
        "correct the shape function of m::op",
    ),
    "wrong-mapping": (
        {"target": "aten::avg_pool2d", "why": "it ignores divisor_override.", "rung": "decompose", "sources": AT},
        "opbridge's mapping of aten::avg_pool2d replaces torch.onnx's, which is not always correct: "
        "it ignores divisor_override.",
        "nothing to do; a model exported with torch.onnx alone is wrong in these cases",
    ),
    "registration-without-operator": (
        {"target": "prim::ConstantChunk", "declared": "old.py:3"},
        "The symbolic function at old.py:3 is for prim::ConstantChunk, which is not an operator of torch, so no "
        "captured graph has it, and it is not used.",
        "register it for the operator that `opbridge diagnose` lists instead",
    ),
    "python-random": (
        {},
        "forward draws random numbers with Python or NumPy; they would be constants of the model.",
        "torch.randint(0, 5, ()).item() for a size or an index",
    ),
    "training-mode": (
        {"targets": ()},
        "The model was passed in training mode; it is captured in evaluation mode.",
        "call model.eval() before the export",
    ),
}


@pytest.mark.parametrize("code", MADE)
def test_finding_made_from_facts(code: str) -> None:
    facts, message, fix = MADE[code]
    found = findings.by_code(code).finding(**facts)
    assert found.code == code
    assert found.message == message
    assert fix in found.fix


def test_a_kernel_that_is_not_built_is_an_error_only_without_a_body() -> None:
    make = findings.by_code("no-compiler").finding
    facts = {"reason": "There is no g++.", "fix": "install g++."}
    found = [make("mylib::add", has_body=has_body, **facts) for has_body in (True, False)]
    assert [(item.severity, item.rung, item.mended) for item in found] == [
        ("warning", "function", True),
        ("error", None, False),
    ]
    assert "mylib::add has no function body to run instead: There is no g++." in found[1].message


def test_an_operator_that_opbridge_mends_is_no_error() -> None:
    found = findings.by_code("unmapped-operator").finding("aten::cummax", rung="decompose")
    assert (found.severity, found.rung, found.mended) == ("info", "decompose", True)
    assert found.fix == "nothing to do: opbridge's catalog has one, rung decompose."
    found = findings.by_code("mapping-failed").finding("m::op", ValueError(), provider="torch")
    assert found.message == "The mapping of m::op to ONNX, torch.onnx's own, fails: ValueError"


def test_a_finding_is_a_frozen_value_and_json() -> None:
    found = Finding("code", "target", "message", "fix", sources=("a.py:1",))
    assert json.loads(json.dumps(found.to_dict())) == {
        "code": "code",
        "target": "target",
        "message": "message",
        "fix": "fix",
        "severity": "error",
        "rung": None,
        "mended": False,
        "sources": ["a.py:1"],
    }
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.code = "other"  # type: ignore[misc]


@pytest.mark.parametrize("module", findings.modules(), ids=lambda module: module.__name__.rpartition(".")[2])
def test_every_finding_file_has_the_common_form(module) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", module.CODE)
    doc = module.__doc__ or ""
    for heading in ("What it means:", "Why it is a problem:", "Example", "Fix:"):
        assert f"\n\n{heading}" in doc, f"{module.__name__} has no {heading!r}"
    assert any(hasattr(module, name) for name in ("explain", "detect", "finding"))
    tested = Path(__file__).read_text() + Path(models.__file__).read_text()
    assert f'"{module.CODE}"' in tested, f"no test names {module.CODE!r}"


def test_codes_are_unique() -> None:
    codes = [module.CODE for module in findings.modules()]
    assert len(codes) == len(set(codes))
    assert len(codes) >= 27


@pytest.mark.parametrize(("dropout", "codes"), [(0.0, []), (0.5, ["random-operator"])])
def test_attention_is_random_only_with_dropout(dropout: float, codes: list[str]) -> None:
    class Attention(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=dropout)

    program = program_of(Attention(), torch.randn(1, 2, 4, 8))
    assert [found.code for found in findings.in_program(program)] == codes


@pytest.mark.parametrize("in_place", [False, True])
def test_dropout_in_evaluation_is_no_finding(in_place: bool) -> None:
    program = program_of(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Dropout(0.5, in_place)).eval(), torch.randn(2))
    assert list(findings.in_program(program)) == []


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize(("training", "dropout"), [(False, 0.5), (True, 0.0), (True, 0.5)])
def test_recurrent_layers_are_random_only_with_dropout_in_training(
    layer: type[nn.Module], training: bool, dropout: float
) -> None:
    program = program_of(layer(4, 4, 2, dropout=dropout).train(training), torch.randn(3, 2, 4))
    codes = [found.code for found in findings.in_program(program)]
    assert codes == (["random-operator", "training-mode"] if training and dropout else [])


def test_findings_about_the_old_ways() -> None:
    found = findings.by_code("ignored-registration").finding("aten::asinh", "ops.py:3", "model.py:7")
    assert found.message == (
        "The symbolic function at ops.py:3 that is registered for aten::asinh is not called, because the modern "
        "exporter uses its own mappings (used at model.py:7)."
    )
    assert found.fix.startswith("call opbridge.legacy.enable() before the export")
    # tests/legacy/test_legacy_functions.py meets the other two in captures.
    for code in ("ignored-symbolic", "function-in-branch"):
        failure = findings.Failure(ValueError("something else"), models.AddsOne(), (X,))
        assert findings.by_code(code).explain(failure) is None


class AsksForLayout(nn.Module):
    """Sparse tensors are dense in a capture."""

    def forward(self, indices: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        matrix = torch.sparse_coo_tensor(indices, values, (5, 5)).coalesce()
        if matrix.layout != torch.sparse_coo:
            raise ValueError("dense")
        return matrix.to_dense()


def test_an_error_that_a_rewrite_causes_is_none_of_the_model_itself() -> None:
    args = torch.tensor([[0, 1, 2, 4], [1, 3, 2, 0]]), torch.rand(4)
    assert AsksForLayout()(*args).shape == (5, 5)
    with pytest.raises(CaptureFailure, match="ValueError: dense") as caught:
        capture(AsksForLayout(), args, rewrites=Catalog.load().rewrites())
    assert "during the capture only" in caught.value.fix
