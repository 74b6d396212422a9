"""The fake of an operator whose ``forward`` reads the contents of a tensor, which fake tensors do not have."""

from __future__ import annotations

import dataclasses

import libcst as cst

from opbridge.legacy.migrate.old_function import OldFunction
from opbridge.legacy.migrate.symbolics import NotConvertible

__all__ = ["Fake", "fake_of"]

_READING = ("tolist", "item", "numpy")
_LEADING_SIZES = {
    "torch.nn.functional.interpolate": 2,
    "torch.nn.functional.upsample": 2,
    "torch.nn.functional.adaptive_avg_pool2d": 2,
    "torch.nn.functional.adaptive_max_pool2d": 2,
    "torch.nn.functional.pad": 0,
    "torch.roll": 0,
}
"""The number of leading sizes that each function keeps; the result has the rank and dtype of the first argument."""


@dataclasses.dataclass(frozen=True)
class Fake:
    """The shape of a result whose sizes depend on the contents of a tensor.

    Attributes:
        parameters: The names of the parameters of the operator.
        like: The parameter whose rank and dtype the result has.
        leading: The number of leading sizes that the result has in common with ``like``.
    """

    parameters: tuple[str, ...]
    like: str
    leading: int

    def statement(self, operator: str) -> cst.BaseStatement:
        """Return the declaration of the fake for an operator."""
        kept = f"*{self.like}.shape[:{self.leading}], " if self.leading else ""
        others = f"{self.like}.shape[{self.leading}:]" if self.leading else f"{self.like}.shape"
        return cst.parse_statement(
            f"\n\n@{operator}.fake\ndef {operator}_fake({', '.join(self.parameters)}):\n"
            f"    # These sizes depend on the contents of a tensor.\n"
            f"    new_size = torch.library.get_ctx().new_dynamic_size\n"
            f"    return {self.like}.new_empty([{kept}*(new_size() for _ in {others})])\n"
        )


def fake_of(function: OldFunction) -> Fake | None:
    """Return the fake that the operator needs; None if its forward runs on fake tensors.

    Raises:
        NotConvertible: The operator needs a fake, and forward does not return a call whose shapes are known.
    """
    script, forward = function.script, function.forward
    reading = next((node for node in script.walk(cst.Attribute, forward) if node.attr.value in _READING), None)
    if reading is None:
        return None
    names = tuple(parameter.name.value for parameter in function.parameters)
    returned = [node.value for node in script.walk(cst.Return, forward)]
    if len(returned) == 1 and isinstance(returned[0], cst.Call) and not function.starred:
        call = returned[0]
        first = script.code(call.args[0].value) if call.args else ""
        leading = _LEADING_SIZES.get(script.path(call.func))
        if leading is not None and first in names:
            return Fake(names, first, leading)
    reason = "forward reads the contents of a tensor; declare the operator by hand, with a .fake"
    raise NotConvertible(reason, reading)
