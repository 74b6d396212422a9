"""A condition on sizes was not checked at other sizes, because the time limit was reached.

What it means: the model branches on a dynamic size. The captured program is compared with eager PyTorch at sizes of the
other branch for a limited time, and this condition was not reached.

Why it is a problem: if the branch of the example is wrong at other sizes, only the verification can show it, which
tries few sizes.

Example::

    if x.shape[0] % 8:       # in a model that takes seconds to run
        x = pad(x)

Fix: verify the bundle with inputs of the sizes that you use, ``opbridge verify BUNDLE --inputs FILE.npz``.
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
        f"The condition on sizes at {source} was not checked at other sizes: the time limit was reached.",
        "verify the bundle with inputs of the sizes that you use: opbridge verify BUNDLE --inputs FILE.npz.",
        severity="warning",
        sources=(source,),
    )
