"""A declared kernel cannot be built: the C++ compiler or a required header-only library is missing.

What it means: the operator has a compiled kernel (rung ``kernel``), but this machine has neither g++ nor clang++, or
the headers of a library (Eigen) are missing.

Why it is a problem: the model runs the operator's function body instead (rung ``function``), which computes the same
result but may be slower. An operator without a function body cannot run.

Example::

    my_add.kernel("my_add.h")              # in an image without a compiler

Fix: install the missing software and export again; or keep the function body if it is fast enough.
"""

from __future__ import annotations

from opbridge.findings.base import Finding

CODE = "no-compiler"


def finding(target: str, *, reason: str, fix: str, has_body: bool, sources: tuple[str, ...] = ()) -> Finding:
    """Make the finding while the kernels of a model are built.

    Args:
        target: The operator.
        reason: A sentence that names the missing software.
        fix: An instruction to install it.
        has_body: Whether every node of the operator has a function body.
        sources: The lines that call the operator.
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
