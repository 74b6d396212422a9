"""The shape function (fake) of a custom operator disagrees with the operator.

What it means: on the same inputs the operator returns another shape or dtype than its shape function says.

Why it is a problem: the graph is built from what the shape function says, and everything behind the operator with it.

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
    """Made where the operator was run on real tensors beside its fake.

    Args:
        target: The operator.
        output: Which of its outputs, counted from 0.
        says: Shape and dtype that the fake gives, in words: ``"float32 of shape (3, 4)"``.
        returns: The same of the operator's own result.
        sources: Where the model calls it.
    """
    return Finding(
        CODE,
        target,
        f"The fake of {target} disagrees with the operator: output {output} is {returns}, but its fake says {says}.",
        f"correct the shape function of {target} (its .fake, or the function under opbridge.fake_for) so that it "
        f"returns {returns} there.",
        sources=sources,
    )
