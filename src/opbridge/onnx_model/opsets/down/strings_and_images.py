"""Operators on strings and images, which have no older equivalents."""

from opbridge.onnx_model.opsets.result import CannotExpress
from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import down


@down("ImageDecoder", version=20)
def image(site: Site) -> None:
    """Images can't be decoded by older operators."""
    raise CannotExpress("no operator before opset 20 reads an image")


@down("RegexFullMatch", "StringConcat", "StringSplit", version=20)
def text(site: Site) -> None:
    """The contents of strings can't be read by older operators."""
    raise CannotExpress("no operator before opset 20 looks into a string")
