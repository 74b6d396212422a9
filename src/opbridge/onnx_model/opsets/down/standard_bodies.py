"""Operators that the standard defines by a function body of older operators."""

from opbridge.onnx_model.opsets.bodies import expand_body
from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import down


@down("Celu", "NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss", version=12)
@down("HardSwish", version=14)
@down("Bernoulli", version=15)
@down("BlackmanWindow", "HammingWindow", "HannWindow", "SequenceMap", version=17)
@down("CenterCropPad", "Mish", version=18)
@down("AffineGrid", "Gelu", version=20)
@down("Attention", "RotaryEmbedding", version=23)
@down("Swish", version=24)
@down("CausalConvWithState", "LinearAttention", version=27)
@down("SwiGLU", version=28)
def expanded(site: Site) -> None:
    """The node is replaced by the standard's function body."""
    expand_body(site)
