"""``opbridge.testing``, and how results show themselves."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import opbridge
from opbridge.proof.verify.verification import CaseResult, Verification
from opbridge.testing import assert_equal

X = torch.linspace(-1, 1, 6).reshape(2, 3)


WRONG = """
import torch
import opbridge

@opbridge.decomposition("aten::hardswish")
def hardswish(self: torch.Tensor) -> torch.Tensor:
    return self * (self / 5 + 0.5).clamp(0, 1)
"""


def test_a_model_that_agrees_passes() -> None:
    assert_equal(nn.Linear(3, 2).eval(), (X,), dynamic_shapes={"input": {0: "n"}})


@pytest.mark.slow
def test_a_model_that_does_not_fails_with_the_output_and_its_error(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(WRONG)
    with pytest.raises(
        AssertionError, match=r"(?s)^onnxruntime: failed on 1 case .*output: mismatch \(.* times the tolerance\)"
    ):
        assert_equal(nn.Hardswish().eval(), (X,), ops=[str(tmp_path / "wrong.py")])
    bundle = opbridge.export(nn.Hardswish().eval(), (X,), path=tmp_path / "b", ops=[str(tmp_path / "wrong.py")])
    assert re.search(r": failed \(output [\d.e+]+ times the tolerance\), for onnxruntime\)$", repr(bundle))
    verification = Verification.from_dict(bundle.verification or {})
    assert re.search(r"failed on 1 case; example sizes, output: [\d.e+]+ times the tolerance\)$", repr(verification))


def test_results_show_themselves_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = Verification("onnxruntime", "passed", (CaseResult("example sizes"),), (), {}, 7)
    assert repr(result) == "Verification(onnxruntime: passed on 1 case)"
    assert str(result) == result.summary()
    assert result._repr_html_() == f"<pre>{result.summary()}</pre>"

    def model(x: Tensor) -> Tensor:
        return x.relu()

    diagnosis = opbridge.diagnose(model, (X,))
    assert repr(diagnosis) == "Diagnosis(1 operator, ok)"
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    capsys.readouterr()
    shown = diagnosis._repr_html_()
    assert shown.startswith("<pre style=")
    assert ">1 native operator (-v lists them)\n" in shown
    assert "\x1b" not in shown
    assert capsys.readouterr().out == "", "a notebook shows it once"
    assert diagnosis._repr_html_().endswith("\nAll operators are supported.</pre>")


def test_a_bundle_shows_itself_in_one_line_and_in_a_notebook_by_its_report(tmp_path: Path) -> None:
    bundle = opbridge.export(nn.ReLU(), (X,), path=tmp_path / "b", dynamic_shapes={"input": {0: "n"}})
    assert repr(bundle) == f"Bundle({str(tmp_path / 'b')!r}: passed, for onnxruntime)"
    page = bundle._repr_html_()
    assert page.startswith('<iframe srcdoc="&lt;!doctype html')
    assert "Matches PyTorch" in page
    assert "Relu" in str(bundle.sources["graph"])
    (tmp_path / "b" / "report.html").unlink()
    assert bundle._repr_html_().startswith("Bundle(&#x27;")
