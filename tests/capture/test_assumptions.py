"""``assume``: what can't be captured otherwise is captured for the example inputs, and every assumption is listed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import index
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import opbridge
from opbridge.capture.capture import Captured, capture
from opbridge.capture.entry import Entry
from opbridge.cli import main
from opbridge.errors import CaptureError, InputError

X = torch.arange(1.0, 13.0).reshape(4, 3)


@dataclasses.dataclass
class Case:
    """A function that can't be captured for all inputs, and what is assumed."""

    function: Callable[[Tensor], Any]
    assumed: list[tuple[str, str]]
    violating: Tensor | None = None


def parity(x: Tensor) -> Tensor:
    return (x + 1, x * 2)[index(x.shape[0] % 2)]


def rows_in_python(x: Tensor) -> Tensor:
    rows = {i: row.sin() for i, row in enumerate(x.unbind())}
    return torch.stack(list(rows.values()))


def reads_an_index(x: Tensor) -> Tensor:
    column = range(3)[x[0].argmax()]
    return x[:, column:] * column


def counts_in_python(x: Tensor) -> Tensor:
    count = range(20)[x.max().long()] - 10
    for _ in range(count):
        x = torch.nn.functional.pad(x, (1, 0))
    return x


def counts_from_a_float(x: Tensor) -> Tensor:
    count = int(x.max()) - 10
    for _ in range(count):
        x = torch.cat([x, x], 1)
    return x


def refuses_to_be_converted(x: Tensor) -> Tensor:
    if not x.min() > 0:
        x = x[:, : int(x.shape[0])].repeat(1, 2)
    if len(x) > 1 and x.min() > 0:
        x = x.flatten()
    return x * 2


def looks_a_size_up(x: Tensor) -> Tensor:
    return x * {4: 2.0}.setdefault(x.shape[0], 1.0)


def blocks_of_a_size(x: Tensor) -> Tensor:
    blocks = {}
    for start in range(int(x.shape[0] / 2) - 1):
        blocks[start] = x[2 * start : 2 * start + 1]
    blocks[-1] = x[x.shape[0] - 1 :]
    return torch.cat(list(blocks.values()))


CASES = {
    "a size as a key": Case(looks_a_size_up, [("n", "4")]),
    "blocks of a size": Case(blocks_of_a_size, [("n", "4")]),
    "branches of two ranks": Case(
        refuses_to_be_converted, [("x.min() > 0", "True"), ("len(x) > 1 and x.min() > 0", "")], X - 100
    ),
    "parity of a size": Case(parity, [("n", "4")]),
    "a loop over the rows": Case(rows_in_python, [("n", "4")]),
    "an index that is read": Case(reads_an_index, [("column = range(3)[x[0].argmax()]", "2")], X.flip(1)),
    "a loop whose carried shape grows": Case(
        counts_in_python, [("count = range(20)[x.max().long()] - 10", "12")], X + 2
    ),
    "a count from a floating-point number": Case(counts_from_a_float, [("for _ in range(count):", "2")], X + 2),
}


class Model(nn.Module):
    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def captured(case: Case, **options: Any) -> Captured:
    return capture(Model(case.function).eval(), (X,), dynamic_shapes={"x": {0: "n"}}, **options)


@pytest.mark.quick(every=12)
@pytest.mark.parametrize("name", CASES)
def test_it_is_captured_for_the_example_inputs_only_with_assume(name: str) -> None:
    case = CASES[name]
    with pytest.raises(CaptureError):
        captured(case)
    found = captured(case, assume=True)
    assert [(item.what, item.value) for item in found.assumptions] == case.assumed
    assert all("test_assumptions.py:" in item.source for item in found.assumptions), found.assumptions
    program = found.program.module(check_guards=False)
    torch.testing.assert_close(program(X), case.function(X))
    if case.violating is not None:
        with pytest.raises(RuntimeError, match="Runtime assertion failed"):
            program(case.violating)


def test_a_model_that_needs_no_assumption_makes_none() -> None:
    found = capture(Model(torch.relu), (X,), dynamic_shapes={"x": {0: "n"}}, assume="check")
    assert (found.assumptions, found.output_names, found.dynamic_axes) == ((), ("output",), {"x": (0,)})


@pytest.mark.slow
def test_what_is_assumed_on_one_line_is_listed_once_and_buffers_are_restored() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return x[:, [int(row.argmax()) for row in x]]

    model = Counting().eval()
    x = torch.eye(3)
    (assumption,) = capture(model, (x,), assume=True).assumptions
    assert (assumption.kind, assumption.value) == ("value", "")
    assert str(assumption).startswith("return x[:, [int(row.argmax()) for row in x]], with its values (")
    assert model.calls == 0


@pytest.mark.slow
def test_the_verdict_names_the_assumptions_and_inputs_that_violate_them_fail(tmp_path: Path) -> None:
    case = CASES["an index that is read"]
    model = Model(case.function).eval()
    bundle = opbridge.export(
        model, (X,), path=tmp_path / "bundle", dynamic_shapes={"x": {0: "n"}}, assume="check", bisect=False
    )
    assert bundle.verified is False
    assert "passed under 1 assumption" in repr(bundle)
    assert [item["what"] for item in bundle.manifest["assumptions"]] == ["column = range(3)[x[0].argmax()]"]
    assert not any(Path(item["source"]).is_absolute() for item in bundle.manifest["assumptions"])
    verification = bundle.verification
    assert verification is not None
    assert verification["verdict"] == "passed"
    assert {case["sizes"]["n"] for case in verification["cases"]} > {4}

    session = opbridge.load(bundle.path)
    result, holds = session(X.numpy())
    np.testing.assert_allclose(result, case.function(X).numpy())
    assert (holds, session(case.violating.numpy())[1]) == (True, False)

    reference = Entry("", model, (X,), dynamic_shapes={"x": {0: "n"}})
    again = opbridge.verify(bundle.path, reference=reference, inputs=[{"x": X.numpy()}])
    assert (again.verdict, again.passed) == ("passed", False)
    assert again.summary().startswith("onnxruntime: passed under 1 assumption on 1 case")
    other = opbridge.verify(bundle.path, reference=reference, inputs=[{"x": case.violating.numpy()}], bisect=False)
    assert other.verdict == "failed"
    assert other.cases[0].error.startswith("The inputs violate an assumption of the model")


@pytest.mark.sweep
def test_the_command_line_accepts_assumptions_with_the_switch_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("parity.py").write_text(
        "import torch\nfrom operator import index\n\nclass Parity(torch.nn.Module):\n    def forward(self, x):\n"
        "        return (x + 1, x * 2)[index(x.shape[0] % 2)]\n\n\n"
        "def model():\n    return {'model': Parity().eval(), 'args': (torch.ones(4, 3),),"
        " 'dynamic_shapes': {'x': {0: 'n'}}}\n"
    )
    command = ["export", "parity.py:model", "-o", "bundle", "--overwrite"]
    assert main(command) == 1
    assert main([*command, "--assume"]) == 0
    printed = capsys.readouterr().out
    assert "assumed: n is 4 (parity.py:6)" in printed
    assert "passed under 1 assumption" in printed
    assert "Matches PyTorch under 1 assumption" in Path("bundle/report.html").read_text(encoding="utf-8")
    assert main(["verify", "bundle"]) == 1
    assert main(["verify", "bundle", "--assume"]) == 0


def test_another_value_of_assume_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="assume='yes' is not valid"):
        opbridge.export(nn.ReLU(), (X,), path=tmp_path / "bundle", assume="yes")
