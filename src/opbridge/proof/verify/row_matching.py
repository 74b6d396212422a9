"""Infers a selection from the rows that follow from it: which candidate each row of the outputs comes from.

A detector gives the boxes, scores and labels of what it selects, and not the indices. Each candidate's row is computed
by selecting it; a row of the results is then the candidate with the nearest row. Nothing is accepted here: whether the
inferred selection is right is decided by the margins, and whether the outputs follow from it by a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch

from opbridge.proof.verify.compare import is_floating

__all__ = ["inferred_selection"]

_MOST_PROBES = 16

Rows = Mapping[str, np.ndarray]


def inferred_selection(
    selected: torch.Tensor, count: int, results: Rows, probe: Callable[[torch.Tensor], Rows | None]
) -> torch.Tensor | None:
    """The selection that results come from; None if they are not rows of what is selected.

    Args:
        selected: The indices that the reference selects, of shape (K,).
        count: The number of candidates.
        results: Outputs by name, whose first axis is that of the selection.
        probe: The same outputs for another selection; None if the reference refuses it.
    """
    lengths = {array.shape[0] if array.ndim else 0 for array in results.values()}
    length = lengths.pop()
    if lengths or not 0 < length <= count <= _MOST_PROBES * length:
        return None
    tables: dict[str, list[np.ndarray]] = {name: [] for name in results}
    for chosen in _chunks(count, length):
        rows = probe(chosen)
        if rows is None or any(rows[name].shape[:1] != chosen.shape for name in results):
            return None
        for name, table in tables.items():
            table.append(rows[name])
    joined = {name: np.concatenate(table)[:count] for name, table in tables.items()}
    distances = np.sum([_distances(results[name], joined[name]) for name in results], axis=0)
    found: list[int] = []
    for row in distances:
        nearest = int(np.argmin(row))
        if not np.isfinite(row[nearest]):
            return None
        found.append(nearest)
        distances[:, nearest] = np.inf
    rest = [index for index in selected.tolist() if index not in set(found)]
    return torch.tensor(found + (rest if len(selected) > length else []), dtype=selected.dtype)


def _chunks(count: int, length: int) -> Iterator[torch.Tensor]:
    """All candidates in parts of one length; the last part begins again with the first candidates."""
    for start in range(0, count, length):
        yield torch.arange(start, start + length) % count


def _distances(results: np.ndarray, table: np.ndarray) -> np.ndarray:
    """How far each row of the results is from each row of the table; infinite for other integers."""
    one, other = (array.reshape(len(array), -1).astype(np.float64) for array in (results, table))
    found = np.zeros((len(one), len(other)))
    for column in range(one.shape[1]):
        found += np.abs(one[:, column, None] - other[None, :, column])
    if not is_floating(results.dtype):
        return np.where(found > 0, np.inf, 0.0)
    scale = np.abs(one).mean()
    return np.asarray(found / scale if scale > 0 else found)
