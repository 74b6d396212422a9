"""A kernel is declared, and there is no C++ compiler to build it with, or no header-only library that it requires.

What it means: the operator has a compiled kernel (rung ``kernel``), but this machine has no g++ or clang++, or the
headers of a library (Eigen) are missing.

Why it is a problem: the model runs the operator's function body instead (rung ``function``): it computes the same and
may be slower. An operator without a function body is lost.

Example::

    my_add.kernel("my_add.h")              # in an image without a compiler

Fix: install what is missing and export again; or keep the body, if it is fast enough.
"""

from __future__ import annotations

from opbridge.findings.base import Finding

CODE = "no-compiler"


def finding(target: str, *, reason: str, fix: str, has_body: bool, sources: tuple[str, ...] = ()) -> Finding:
    """Made where the kernels of a model are to be built.

    Args:
        target: The operator.
        reason: What is missing, in a sentence.
        fix: How to install it.
        has_body: Whether every node of the operator has a function body to run.
        sources: Where the model calls it.
    """
    instead = "runs its function body, which may be slower" if has_body else "has no function body to run instead"
    return Finding(
        CODE,
        target,
        f"The kernel of {target} is not built, and {target} {instead}: {reason}",
        f"{fix} Then export again.",
        severity="warning" if has_body else "error",
        rung="function" if has_body else None,
        mended=has_body,
        sources=sources,
    )
