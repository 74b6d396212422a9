"""The shape function (fake) of a custom operator raises an exception.

What it means: during the capture the operator's shape function runs on tensors without contents, and it fails.

Why it is a problem: without a working shape function torch does not know what the operator returns.

Example::

    @opbridge.operator("mylib::sort")
    def sort(x: Tensor) -> Tensor:
        return torch.from_numpy(np.sort(x.numpy()))      # also run as the shape function, on a tensor without memory

Fix: define a shape function that computes only shapes, with ``.fake`` or ``opbridge.fake_for``.
"""

from __future__ import annotations

from opbridge.errors import described_error
from opbridge.findings.base import Failure, Finding
from opbridge.torch_graph.sources import frames_of_error, innermost
from opbridge.torch_graph.statements import called_name

CODE = "failing-fake"
ORDER = 2


def explain(failure: Failure) -> Finding | None:
    """Recognized by the traceback, which goes through torch's shape propagation into the user's code."""
    if not failure.in_fake:
        return None
    frames = frames_of_error(failure.error)
    entered = next(index for index, frame in enumerate(frames) if frame.file.endswith("fake_tensor.py"))
    caller = innermost(frames[:entered])
    call = f", called by `{caller.text}` at {caller}," if caller is not None else ""
    return failure.finding(
        CODE,
        called_name(caller) or "fake",
        f"The shape function (fake) at {failure.place}{call} fails: {described_error(failure.error, 200)}",
        "correct it, or define one that only computes shapes (x.new_empty(...)) and does not read contents: use .fake "
        "for an @opbridge.operator and opbridge.fake_for for any other operator.",
    )
