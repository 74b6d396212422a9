"""CastLike: a Cast to the known type of the other input."""

from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import down


@down("CastLike", version=15)
def cast(site: Site) -> None:
    """The node becomes a Cast to the type of the other input."""
    wanted = site.dtype(site.input(1))
    site.replace(site.op.Cast(site.input(0), to=int(wanted)))


@down("CastLike", "Cast", version=19)
def saturate_dropped(site: Site) -> None:
    """The attribute for overflow in float8 is removed for other types."""
    _drop_if_float8_is_absent(site, "saturate")


@down("CastLike", "Cast", version=24)
def round_mode_dropped(site: Site) -> None:
    """The attribute for rounding to float8e8m0 is removed for other types."""
    _drop_if_float8_is_absent(site, "round_mode")


def _drop_if_float8_is_absent(site: Site, name: str) -> None:
    # A type that the older opset does not have is refused later, as for all operators.
    site.set(**{name: None})
