"""LSTM, GRU, RNN: the batch-first ``layout=1`` since opset 14."""

from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import down


@down("LSTM", "GRU", "RNN", version=14)
def transposed(site: Site) -> None:
    """The leading batch axis is moved by Transpose nodes before and after the node."""
    layout = site.attribute("layout")
    site.set(layout=None)
    if not layout:
        return
    op = site.op
    inputs = list(site.node.inputs)
    for position in (0, 5, 6):
        if position < len(inputs) and inputs[position] is not None:
            inputs[position] = op.Transpose(inputs[position], perm=[1, 0, 2])
    number = len(site.node.outputs)
    results = site.again(*inputs)
    results = results if number > 1 else (results,)
    turned = [op.Transpose(results[0], perm=[2, 0, 1, 3]) if site.is_used(0) else None]
    turned += [
        op.Transpose(result, perm=[1, 0, 2]) if site.is_used(1 + i) else None for i, result in enumerate(results[1:])
    ]
    site.replace(*turned)
