"""The shape function of an operator whose ``forward`` reads contents, which fake tensors do not have."""

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
"""How many of the first sizes each leaves as they are; the result has the rank and dtype of its first argument."""


@dataclasses.dataclass(frozen=True)
class Fake:
    """What the results are like, whatever the contents.

    Attributes:
        parameters: The operator's.
        like: The one whose rank and dtype the result has.
        leading: How many of its first sizes the result has, too.
    """

    parameters: tuple[str, ...]
    like: str
    leading: int

    def statement(self, operator: str) -> cst.BaseStatement:
        """Its declaration for the operator of that name."""
        kept = f"*{self.like}.shape[:{self.leading}], " if self.leading else ""
        others = f"{self.like}.shape[{self.leading}:]" if self.leading else f"{self.like}.shape"
        return cst.parse_statement(
            f"\n\n@{operator}.fake\ndef {operator}_fake({', '.join(self.parameters)}):\n"
            f"    # These sizes depend on the contents of a tensor.\n"
            f"    new_size = torch.library.get_ctx().new_dynamic_size\n"
            f"    return {self.like}.new_empty([{kept}*(new_size() for _ in {others})])\n"
        )


def fake_of(function: OldFunction) -> Fake | None:
    """The shape function that the operator needs; None if its own forward runs on fake tensors.

    Raises:
        NotConvertible: It needs one, and its forward does not end in a call whose shapes are known.
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
