"""Whether an export uses the catalog's own compiled kernels."""

from __future__ import annotations

from typing import Literal, get_args

from opbridge.errors import InputError

__all__ = ["ALWAYS", "AUTO", "NEVER", "Kernels", "checked_kernels"]

Kernels = Literal["auto", "never", "always"]
"""``"auto"``: for operators that ONNX nodes can express only as a function with loops, such as factorizations; and for
ONNX Runtime alone for large tensors, where a kernel is at least twice as fast as the nodes. ``"always"``: for tensors
of any size, and for chains of elementwise nodes. ``"never"``: for none."""

AUTO: Kernels = "auto"
NEVER: Kernels = "never"
ALWAYS: Kernels = "always"


def checked_kernels(kernels: str) -> Kernels:
    """The choice of a user.

    Raises:
        InputError: There is no such choice.
    """
    for known in get_args(Kernels):
        if kernels == known:
            return known  # type: ignore[no-any-return]
    raise InputError(
        f"kernels={kernels!r} is not valid: it can be {', '.join(map(repr, get_args(Kernels)))}.",
        fix=f"pass kernels={ALWAYS!r} for the fastest model, or kernels={NEVER!r} for one without a library.",
    )
