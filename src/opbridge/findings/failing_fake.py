"""The shape function (fake) of a custom operator raises.

What it means: while the model is captured, the operator's shape function is run on tensors without contents. It fails.

Why it is a problem: without it torch does not know what the operator returns.

Example::

    @opbridge.operator("mylib::sort")
    def sort(x: Tensor) -> Tensor:
        return torch.from_numpy(np.sort(x.numpy()))      # also run as the shape function, on a tensor without memory

Fix: give the operator a shape function that computes shapes only, with ``.fake`` or ``opbridge.fake_for``.
"""

from __future__ import annotations

from opbridge.errors import described_error
from opbridge.findings.base import Failure, Finding
from opbridge.torch_graph.sources import called_name, frames_of_error, innermost

CODE = "failing-fake"
ORDER = 2


def explain(failure: Failure) -> Finding | None:
    """Recognised by the traceback: it goes through torch's shape propagation into the user's code."""
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
        "correct it, or give the operator one that only computes shapes (x.new_empty(...)) and reads no contents: "
        "with .fake on an @opbridge.operator, with opbridge.fake_for on another.",
    )
