"""Attention: windows since opset 25, lengths of an external cache since 24."""

from opbridge.onnx_model.opsets.bodies import expand_body
from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import down


@down("Attention", version=25)
def without_windows(site: Site) -> None:
    """With a window, the node is replaced by the standard's function body."""
    if site.attribute("left_window_size") == -1 and site.attribute("right_window_size") == -1:
        site.set(left_window_size=None, right_window_size=None)
    else:
        expand_body(site)


@down("Attention", version=24)
def without_lengths(site: Site) -> None:
    """With the lengths of a cache, the node is replaced by the standard's function body."""
    if site.input(6) is not None:
        expand_body(site)
