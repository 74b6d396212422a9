"""Operators on strings and images, which have no older equivalents."""

from opbridge.onnx_model.opsets.result import CannotExpress
from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import down


@down("ImageDecoder", version=20)
def image(site: Site) -> None:
    """No older operator reads an image."""
    raise CannotExpress("no operator before opset 20 reads an image")


@down("RegexFullMatch", "StringConcat", "StringSplit", version=20)
def text(site: Site) -> None:
    """No older operator looks into a string."""
    raise CannotExpress("no operator before opset 20 looks into a string")
