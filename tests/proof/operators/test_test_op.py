"""``opbridge test-op``: what it finds in operators that are right, wrong, and no operators."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import dedent

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

import opbridge
from opbridge.catalog.declare.scaffold import new_operator
from opbridge.cli import main
from opbridge.errors import InputError
from opbridge.proof.operators.result import CheckResult, OperatorCheck
from opbridge.proof.operators.run import run_checks
from opbridge.verbs import operator_check, operator_child
from opbridge.verbs.operator_check import check_operators

pytestmark = pytest.mark.newest

HEAD = "import torch\nfrom torch import Tensor\nimport opbridge\n"
SCALE = """\
#include "opbridge.h"
template <class T>
static void scale(opbridge::Call& call) {{
  opbridge::elementwise(call, call.output<T>(0), [](auto x) {{ return {formula}; }}, call.input<T>(0));
}}
OPBRIDGE_OPERATOR(scale, {shape}, "{target}(T x) -> T y", opbridge::types<{types}>)
"""


def kernel(
    target: str, formula: str = "2 * x", shape: str = "opbridge::shape_of_first", types: str = "float, double"
) -> str:
    return SCALE.format(target=target, formula=formula, shape=shape, types=types)


def declared(name: str, samples: str = "torch.randn(3, 4)", body: str = "2 * x", after: str = "") -> str:
    """A file with one operator, of one tensor; ``after`` comes behind it."""
    return f"""{HEAD}
def samples():
    return [opbridge.Sample((x,), name=f"number {{i}}") for i, x in enumerate([{samples}], 1)]

@opbridge.operator("test_test_op::{name}", samples=samples)
def {name}(x: Tensor) -> Tensor:
    return {body}

{dedent(after)}"""


Check = Callable[..., OperatorCheck]


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """Write a file, and the kernel beside it, and check it in this process."""

    def check(text: str, header: str = "", engines: Sequence[str] = ("onnxruntime",)) -> OperatorCheck:
        file = tmp_path / f"file_of_{tmp_path.name}.py"
        file.write_text(text)
        if header:
            (tmp_path / "kernel.h").write_text(header)
        return OperatorCheck(file.name, tuple(run_checks(str(file), engines, lambda *_: None, opbridge.export)))

    return check


def rows(found: OperatorCheck, status: str) -> dict[tuple[str, str], str]:
    return {(result.sample, result.check): result.detail for result in found.results if result.status == status}


@pytest.mark.sweep
def test_the_scaffold_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new_operator("test_test_op::scaffolded", tmp_path, kernel=True)
    assert main(["test-op", str(tmp_path / "scaffolded.py"), "-q", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["passed"]
    assert data["counts"]["failed"] == data["counts"]["not run"] == data["counts"]["not applicable"] == 0
    (built,) = [result for result in data["results"] if result["check"] == "kernel builds"]
    assert built["detail"] == "scaffolded.h: float32; float64; float16; bfloat16"
    samples = {result["sample"] for result in data["results"]} - {""}
    assert samples == {
        "one row", "broadcast", "rank 0", "empty", "transposed", "float64", "float16", "bfloat16"
    }  # fmt: skip
    for sample in samples:
        assert [result["check"] for result in data["results"] if result["sample"] == sample] == [
            "opcheck", "shapes", "kernel", "gradients", "onnxruntime, kernel", "onnxruntime, function body"
        ]  # fmt: skip


@pytest.mark.sweep
def test_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    file = tmp_path / "tabled.py"
    file.write_text(declared("tabled", "torch.ones(2), torch.arange(3)", body="x + x"))
    assert main(["test-op", str(file), "-q"]) == 0
    lines = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    assert cells[0] == ["operator", "check", "sample", "result", "detail"]
    assert ["test_test_op::tabled", "opcheck", "2 samples", "passed"] in cells
    reason = "no input is a floating-point tensor"
    assert ["test_test_op::tabled", "gradients", "number 2", "not applicable", reason] in cells
    assert ["test_test_op::tabled", "onnxruntime", "2 samples", "passed"] in cells
    assert cells[-1] == [f"{file}: passed (7 passed, 3 not applicable)"]
    assert main(["test-op", str(file), "-q", "-v"]) == 0
    printed = [re.sub(" {2,}", "|", line).strip() for line in capsys.readouterr().out.splitlines()]
    assert "test_test_op::tabled|opcheck|number 1|passed|4 tests" in printed
    assert "test_test_op::tabled|onnxruntime|number 2|passed|identical" in printed


@pytest.mark.sweep
def test_a_wrong_kernel(check: Check) -> None:
    # It is wrong for values above 10 alone, which the second sample has, and in float32.
    formula = "sizeof(x) == 4 && x > 10 ? 3 * x : 2 * x"
    found = check(
        declared(
            "wrong_kernel",
            "torch.rand(3), 20 + torch.rand(4), 20 + torch.rand(4).double()",
            after="wrong_kernel.kernel('kernel.h')",
        ),
        kernel("test_test_op::wrong_kernel", formula),
    )
    assert not found.passed
    failed = rows(found, "failed")
    assert ("number 2", "kernel") in failed
    assert ("number 2", "onnxruntime, kernel") in failed
    assert "differs from PyTorch's: by 2" in failed["number 2", "kernel"]
    assert {sample for sample, _ in failed} == {"number 2"}
    assert ("number 2", "onnxruntime, function body") in rows(found, "passed")


def test_a_wrong_fake(check: Check) -> None:
    after = """
        @wrong_fake.fake
        def _(x):
            return x.new_empty(x.shape[1:])
    """
    failed = rows(check(declared("wrong_fake", after=after)), "failed")
    assert failed["number 1", "shapes"] == (
        "output 0 of the Python function is float32 of shape (3, 4), but the fake returns float32 of shape (4,)\n"
        "fix: correct the shape function (its .fake), so that it matches what the Python function returns."
    )
    assert ("number 1", "opcheck") in failed
    assert "disagrees with the operator" in failed["number 1", "onnxruntime"]


@pytest.mark.slow
def test_a_shape_function_that_disagrees_with_the_fake(check: Check) -> None:
    shape = "[](opbridge::ShapeCall& call) { call.set_output(0, {call.size(0, 1), call.size(0, 0)}); }"
    header = kernel("test_test_op::other_shape", "2 * x").replace(
        "OPBRIDGE_OPERATOR(", f"static const auto turned = {shape};\nOPBRIDGE_OPERATOR("
    )
    header = header.replace("opbridge::shape_of_first", "turned").replace(
        "opbridge::elementwise(call, call.output<T>(0), [](auto x) { return 2 * x; }, call.input<T>(0));",
        "for (int64_t i = 0; i < call.input<T>(0).count(); ++i) call.output<T>(0).data()[i] = 2;",
    )
    failed = rows(check(declared("other_shape", after="other_shape.kernel('kernel.h')"), header), "failed")
    assert failed["number 1", "shapes"] == (
        "output 0 of the kernel is float32 of shape (4, 3), but the fake returns float32 of shape (3, 4)\n"
        "fix: correct the kernel's shape function, the second argument of OPBRIDGE_OPERATOR."
    )
    assert "shape" in failed["number 1", "kernel"]


def test_a_kernel_that_does_not_compile(check: Check) -> None:
    found = check(
        declared("no_compile", after="no_compile.kernel('kernel.h')"),
        kernel("test_test_op::no_compile", "undeclared * x"),
    )
    failed = rows(found, "failed")
    assert set(failed) == {("", "kernel builds")}
    first, *errors, fix = failed["", "kernel builds"].splitlines()
    assert first == "kernel.h does not compile:"
    assert fix == "fix: correct these lines; opbridge.h explains what a kernel is made of."
    assert all("kernel.h:4: " in line for line in errors)
    assert any("'undeclared' was not declared" in line or "undeclared identifier" in line for line in errors)
    passed, not_run = rows(found, "passed"), rows(found, "not run")
    assert ("number 1", "opcheck") in passed
    assert not_run["number 1", "kernel"] == not_run["number 1", "onnxruntime"] == "the kernel is not built"


@pytest.mark.sweep
def test_a_kernel_of_another_operator(check: Check) -> None:
    text = declared("known_operator", after="known_operator.kernel('kernel.h')")
    failed = rows(check(text, kernel("test_test_op::unknown_operator")), "failed")
    assert failed == {
        ("", "kernel builds"): "kernel.h has no kernel for test_test_op::known_operator; it has: "
        "test_test_op::unknown_operator\n"
        "fix: make the name in OPBRIDGE_OPERATOR's schema and the declared one the same."
    }


@pytest.mark.sweep
def test_a_kernel_with_other_arguments(check: Check) -> None:
    text = declared("other_arguments", after="other_arguments.kernel('kernel.h')")
    failed = rows(check(text, kernel("test_test_op::other_arguments").replace("(T x)", "(T z)")), "failed")
    assert set(failed) == {("", "kernel builds")}
    assert "can't serve the torch operator test_test_op::other_arguments" in failed["", "kernel builds"]


def test_a_kernel_for_an_operator_that_nobody_declares(check: Check) -> None:
    found = check(f"{HEAD}opbridge.kernel_for('test_test_op::nobody', 'kernel.h')", kernel("test_test_op::nobody"))
    assert [result.status for result in found.results] == ["passed", "not applicable"]
    assert "no operator of this name is declared in the file" in found.results[1].detail


def test_no_compiler(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    text = declared("no_compiler", after="no_compiler.kernel('kernel.h')")
    found = check(text, kernel("test_test_op::no_compiler"))
    assert found.passed
    not_run = rows(found, "not run")
    assert "'no-such-compiler', which does not exist" in not_run["", "kernel builds"]
    assert not_run["number 1", "kernel"] == "the kernel is not built"


@pytest.mark.sweep
def test_a_kernel_that_does_not_take_the_dtype(check: Check) -> None:
    found = check(
        declared("float_only", "torch.rand(3).half()", after="float_only.kernel('kernel.h')"),
        kernel("test_test_op::float_only"),
    )
    assert found.passed
    reason = rows(found, "not applicable")["number 1", "kernel"]
    assert reason == "PyTorch calls the Python function here: the kernel does not take float16"


def test_wrong_gradients(check: Check) -> None:
    body = "x * x.detach()"
    failed = rows(check(declared("wrong_gradient", body=body)), "failed")
    assert set(failed) == {("number 1", "gradients")}
    assert "Jacobian mismatch" in failed["number 1", "gradients"]


@pytest.mark.slow
def test_gradients_at_a_kink(check: Check) -> None:
    found = check(declared("kink", "torch.zeros(4)", body="x.clamp(min=0)"))
    assert found.passed
    assert rows(found, "passed")["number 1", "gradients"] == "float64, close to the sample's values"


@pytest.mark.sweep
def test_gradients_that_are_not_checked(check: Check) -> None:
    samples = "torch.rand(400), torch.zeros(0), torch.tensor([torch.inf])"
    found = check(declared("many_elements", samples, body="x.abs()"))
    reasons = rows(found, "not applicable")
    assert "400 elements are too many for gradcheck" in reasons["number 1", "gradients"]
    assert reasons["number 2", "gradients"] == "the inputs are empty"
    assert reasons["number 3", "gradients"] == "an input is not finite"
    assert found.passed


def test_a_function_that_raises(check: Check) -> None:
    failed = rows(check(declared("raising", "torch.rand(2), torch.rand(2, 2)", body="x.reshape(2).clone()")), "failed")
    assert set(failed) == {("number 2", "Python function")}
    assert "it raises RuntimeError: shape '[2]' is invalid" in failed["number 2", "Python function"]
    assert ".py:10" in failed["number 2", "Python function"]


@pytest.mark.slow
def test_a_result_that_is_a_view_of_an_input(check: Check) -> None:
    failed = rows(check(declared("viewing", body="x.reshape(12)")), "failed")
    assert "must not also be an input to this custom operator" in failed["number 1", "opcheck"]
    assert "must not also be an input to this custom operator" in failed["number 1", "onnxruntime"]


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ("None", "it declares no samples"),
        ("lambda: []", "returns none"),
        ("lambda: [torch.rand(2)]", "number 1 of its samples is a Tensor, not an opbridge.Sample of a tuple"),
        ("lambda: [opbridge.Sample(torch.rand(2))]", "is a Sample, not an opbridge.Sample of a tuple"),
        ("lambda: 1 / 0", "its samples function raises ZeroDivisionError: division by zero"),
    ],
)
def test_samples_that_can_not_be_used(samples: str, message: str, check: Check) -> None:
    name = f"sampled_{abs(hash(samples))}"
    text = declared(name).replace("samples=samples", f"samples={samples}")
    found = check(text)
    assert not found.passed
    assert message in rows(found, "failed")["", "samples"]


@pytest.mark.slow
def test_mappings(check: Check) -> None:
    found = check(f"""{HEAD}
from onnxscript import opset18 as op

def pairs():
    return [opbridge.Sample((torch.rand(3), torch.rand(3))), opbridge.Sample((torch.rand(3, 1), torch.rand(4)))]

@opbridge.decomposition("aten::logaddexp2", samples=pairs, overrides="a test")
def logaddexp2(self, other):
    return torch.log2(torch.exp2(self) + torch.exp2(other))

@opbridge.translation("aten::acosh", samples=lambda: [opbridge.Sample((1 + torch.rand(4),), name="ones")])
def acosh(self):
    return op.Log(self)
""")
    assert rows(found, "passed") == {
        ("float32[3], float32[3]", "onnxruntime"): rows(found, "passed")["float32[3], float32[3]", "onnxruntime"],
        ("float32[3, 1], float32[4]", "onnxruntime"): rows(found, "passed")["float32[3, 1], float32[4]", "onnxruntime"],
    }
    assert "differs from PyTorch's" in rows(found, "failed")["ones", "onnxruntime"]


def test_what_has_no_samples_by_its_kind(check: Check) -> None:
    found = check(f"""{HEAD}
torch.library.define("test_test_op::theirs", "(Tensor x) -> Tensor")

@opbridge.fake_for("test_test_op::theirs")
def shape(x):
    return torch.empty_like(x)

@opbridge.rewrite("torch.roll")
def roll(original, *args, **kwargs):  # It stays declared for the tests that follow in this process.
    return original(*args, **kwargs)
""")
    assert [(result.target, result.status) for result in found.results] == [
        ("test_test_op::theirs", "not applicable"),
        ("torch.roll", "not applicable"),
    ]
    assert not found.passed


def test_an_engine_that_is_not_installed(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    from opbridge.engines import get
    from opbridge.engines.base import Engine
    from opbridge.errors import EngineNotInstalledError

    def missing(self: Engine) -> str:
        raise EngineNotInstalledError("onnxruntime is not installed.", fix="pip install onnxruntime")

    monkeypatch.setattr(type(get("onnxruntime")), "version", property(missing))
    found = check(declared("without_engine"))
    assert found.passed
    assert rows(found, "not run") == {("", "onnxruntime"): "onnxruntime is not installed. pip install onnxruntime"}


@pytest.mark.sweep
def test_a_kernel_that_crashes(tmp_path: Path) -> None:
    header = kernel("test_test_op::crashing", "x").replace("opbridge::elementwise", "__builtin_trap(); elementwise")
    (tmp_path / "kernel.h").write_text(header.replace("elementwise(call", "opbridge::elementwise(call"))
    (tmp_path / "crashing.py").write_text(declared("crashing", after="crashing.kernel('kernel.h')"))
    doing: list[str] = []
    found = check_operators(tmp_path / "crashing.py", progress=doing.append)
    last = found.results[-1]
    assert (last.target, last.sample, last.check, last.status) == (
        "test_test_op::crashing", "number 1", "opcheck", "failed"
    )  # fmt: skip
    assert last.detail.startswith("the process crashed (SIG")
    assert doing == ["importing", "checking test_test_op::crashing", "checking test_test_op::crashing, number 1"]
    assert not found.passed


@pytest.mark.quick(every=4)
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "There is no Python file"),
        ("x = 1", "file.py declares no operator and no mapping."),
        ("1 / 0", "raised ZeroDivisionError: division by zero"),
        ("print('hello'); raise SystemExit(3)", "raised SystemExit: 3"),
    ],
)
def test_files_that_can_not_be_used(text: str | None, message: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "file.py").write_text(text)
    with pytest.raises(InputError) as raised:
        check_operators(tmp_path / "file.py")
    assert message in raised.value.message


def test_an_unknown_engine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["test-op", str(tmp_path / "file.py"), "--engine", "onnxruntme", "-q"]) == 1
    assert "did you mean 'onnxruntime'?" in capsys.readouterr().err


def test_the_result_as_data() -> None:
    results = [CheckResult("a::b", "s", "opcheck", status) for status in ("passed", "not run", "failed")]
    assert OperatorCheck("f.py", tuple(results[:2])).passed
    assert not OperatorCheck("f.py", tuple(results)).passed
    assert not OperatorCheck("f.py", ()).passed
    data = OperatorCheck("f.py", tuple(results)).to_dict()
    assert data["counts"] == {"passed": 1, "failed": 1, "not applicable": 0, "not run": 1}
    assert json.loads(json.dumps(data)) == data


def test_what_the_system_refuses_to_the_child_is_an_error_of_the_system() -> None:
    refused = operator_check._raised(operator_child._described(OSError(errno.ENOSPC, "No space left on device", "x")))
    assert isinstance(refused, OSError)
    assert (refused.errno, refused.filename) == (errno.ENOSPC, "x")
