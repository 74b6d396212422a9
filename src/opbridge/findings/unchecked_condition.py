"""A check of values is not in the model.

What it means: the model, or a function of a library that it calls, checks the values of a tensor, with an ``assert`` or
an ``if`` that only raises an error. The check is left out of the captured program, because an ONNX model can't raise an
error.

Why it is a problem: for inputs that PyTorch refuses, the model returns a result.

Example::

    class Loss(torch.nn.Module):
        def forward(self, x, y):
            return piq.ssim(x, y)              # asserts that all values are between 0 and 1

Fix: check the inputs before they are given to the model, if they can be invalid.
"""

from __future__ import annotations

from opbridge.findings.base import Finding

CODE = "unchecked-condition"


def finding(source: str, statement: str) -> Finding:
    """Make the finding.

    Args:
        source: The line of the check: ``"piq/utils/common.py:100"``.
        statement: The source of the statement that is left out: ``"assert x.min() >= 0"``.
    """
    return Finding(
        CODE,
        source,
        f"The model does not check `{statement}` ({source}): an ONNX model can't raise an error.",
        "if inputs can violate the condition, check them before they are given to the model.",
        severity="info",
        sources=(source,),
    )
