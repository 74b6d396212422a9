"""The shape function (fake) of a custom operator disagrees with the operator.

What it means: for the same inputs, the operator and its shape function return different shapes or dtypes.

Why it is a problem: the graph after the operator is built from the result of the shape function.

Example::

    @opbridge.fake_for("mylib::pool")
    def _(x):
        return torch.empty_like(x)         # the operator returns half the size

Fix: correct the shape function.
"""

from __future__ import annotations

from opbridge.findings.base import Finding

CODE = "fake-disagrees"


def finding(target: str, *, output: int, says: str, returns: str, sources: tuple[str, ...] = ()) -> Finding:
    """Make the finding after running the operator on real tensors and comparing it with its fake.

    Args:
        target: The operator.
        output: The index of the output, from 0.
        says: The shape and dtype returned by the fake, in words: ``"float32 of shape (3, 4)"``.
        returns: The shape and dtype returned by the operator, in the same form.
        sources: The lines that call the operator.
    """
    return Finding(
        CODE,
        target,
        f"The fake of {target} disagrees with the operator: output {output} is {returns}, but its fake returns {says}.",
        f"correct the shape function of {target} (its .fake, or the function decorated with opbridge.fake_for) so that "
        f"it returns {returns} there.",
        sources=sources,
    )
