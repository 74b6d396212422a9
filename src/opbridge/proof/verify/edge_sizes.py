"""The sizes 0 and 1, for which torch.export may assume that they do not occur, and odd and even ones."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from opbridge.errors import described_error
from opbridge.proof.verify.reference import Case
from opbridge.proof.verify.sizes import Sizes

__all__ = ["EdgeSizes", "ProgramRefuses"]

_MOST = 24
_MOST_SECONDS = 5.0


class ProgramRefuses(Exception):
    """The captured program refuses inputs that eager PyTorch accepts."""


@dataclasses.dataclass(frozen=True)
class EdgeSizes:
    """Tries each dynamic dimension alone at a size at which models often fail.

    Attributes:
        sizes: The dynamic dimensions.
        name_of: Returns the user's name of a dimension.
        run: Runs PyTorch at given sizes, under the name of a case; raises what PyTorch raises.
        agrees: Whether the captured graph computes what the module does.
        notes: The notes of the result, to which it adds.
    """

    sizes: Sizes
    name_of: Callable[[str], str]
    run: Callable[[str, Mapping[str, int]], Case]
    agrees: Callable[[Case], bool]
    notes: list[str]

    def cases(self, done: Sequence[Mapping[str, int]]) -> Iterator[Case]:
        """The cases at 0, at 1, and at an odd or even size, apart from those that were tried before."""
        for number, (symbol, sizes) in enumerate(self.sizes.edges(done)):
            if number == _MOST:
                self.notes.append(f"only the first {_MOST} of the edge sizes were tried")
                return
            text = f"{self.name_of(symbol)}={sizes[symbol]}"
            try:
                case = self.run(f"size {text}", sizes)
            except ProgramRefuses:
                self._note(symbol, text)
            except Exception as error:
                self.notes.append(f"PyTorch refuses {text}: {described_error(error)}")
            else:
                if self.sizes.is_promised(sizes) or self.agrees(case):
                    yield case
                else:
                    self._note(symbol, text)

    def note_size_one(self, done: Sequence[Mapping[str, int]]) -> None:
        """Note each dimension at whose size 1 the captured graph differs from the module, as far as time allows."""
        start = time.perf_counter()
        for symbol, sizes in self.sizes.edges(done):
            if sizes[symbol] != 1 or self.sizes.is_promised(sizes):
                continue
            if time.perf_counter() - start > _MOST_SECONDS:
                return
            text = f"{self.name_of(symbol)}=1"
            try:
                differs = not self.agrees(self.run(f"size {text}", sizes))
            except ProgramRefuses:
                differs = True
            except Exception:
                continue
            if differs:
                self._note(symbol, text)

    def _note(self, symbol: str, text: str) -> None:
        name = self.name_of(symbol)
        fix = f"; if this size occurs, declare torch.export.Dim({name!r}, min=1)" if text.endswith("=1") else ""
        self.notes.append(
            f"at {text} the captured graph does not compute what the module computes, because torch.export assumed "
            f"that {name} is at least 2; the engine was not run at this size{fix}"
        )
