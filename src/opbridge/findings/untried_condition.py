"""A condition on sizes was not compared with PyTorch, because the time was up.

What it means: the model branches on a dynamic size. The sizes at which the branch changes are compared with eager
PyTorch for a minute, and this condition was not among those that were reached.

Why it is a problem: if the branch of the example is wrong at other sizes, only the cases of the verification can show
it, and they are at few sizes.

Example::

    if x.shape[0] % 8:       # in a model that takes seconds to run
        x = pad(x)

Fix: verify the bundle with inputs of sizes that you use, ``opbridge verify BUNDLE --inputs FILE.npz``.
"""

from __future__ import annotations

from opbridge.findings.base import Finding

CODE = "untried-condition"


def finding(source: str) -> Finding:
    """Make the finding.

    Args:
        source: The line of the condition: ``"model.py:100"``.
    """
    return Finding(
        CODE,
        source,
        f"The condition on sizes at {source} was not compared with PyTorch at other sizes: the time was up.",
        "verify the bundle with inputs of the sizes that you use: opbridge verify BUNDLE --inputs FILE.npz.",
        severity="warning",
        sources=(source,),
    )
