"""The quick part of ``opbridge conformance``: an entry of PyTorch's operator database for each operator of the catalog.

``test_ops.py`` has those whose results are compared digit by digit; here are all others, on one sample each, several in
one export, judged as ``opbridge verify`` judges.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

from test_ops import NAMES_IN_DATABASE  # noqa: E402

from opbridge.catalog.declare.catalog import Catalog  # noqa: E402
from opbridge.proof.conformance import database  # noqa: E402
from opbridge.proof.conformance.applicability import NOT_APPLICABLE  # noqa: E402
from opbridge.proof.conformance.batches import Sample, in_batches, verdicts  # noqa: E402
from opbridge.proof.conformance.calls import Call  # noqa: E402
from opbridge.proof.conformance.check import Checked, Checker  # noqa: E402
from opbridge.proof.conformance.definitions import definition_of  # noqa: E402
from opbridge.proof.conformance.results import Way  # noqa: E402
from opbridge.torch_graph.silence import silenced  # noqa: E402

pytestmark = pytest.mark.newest


def _bare(name: str) -> str:
    """The name of an operator without what PyTorch puts around it: "_linalg_svd", "linalg_inv_ex"."""
    name = name.strip("_").removeprefix("linalg_").removeprefix("special_").removeprefix("native_")
    for ending in ("_ex", "_forward", "_functional", "_legit", "_with_noise", "_atol_rtol_tensor"):
        name = name.removesuffix(ending)
    return name


def _entries() -> list[str]:
    targets = [spec.target for spec in Catalog.load().builtin if spec.rung in ("decompose", "translate")]
    served = {_bare(target.partition("::")[2].partition(".")[0]) for target in targets}
    return [
        entry
        for entry, info in database.entries().items()
        if entry not in NOT_APPLICABLE.keys() | LEFT_OUT
        and info.name.split(".")[-1] not in NAMES_IN_DATABASE
        and (_bare(info.name.split(".")[-1]) in served or entry in MADE_OF_THEM)
    ]


LEFT_OUT = {
    *(
        "linalg.cholesky_ex",
        "linalg.inv",
        "linalg.inv_ex",
        "linalg.ldl_factor",
        "linalg.lu_factor_ex",
        "linalg.lu_solve",
    ),
    *("linalg.matrix_sqrth", "linalg.pinv.hermitian", "linalg.pinv.singular", "linalg.polar", "linalg.solve_ex"),
    *("linalg.eig", "linalg.lu", "linalg.lu_factor", "linalg.pinv", "linalg.slogdet", "linalg.det", "lu", "lu_solve"),
    *("linalg.ldl_factor_ex", "polar", "svd", "triangular_solve"),
}
"""For time: what is made of the same nodes as another entry, or tested in test_linalg.py."""

MADE_OF_THEM = {
    *("corrcoef", "cov", "fft.fft2", "fft.ifftn", "fft.ihfft2", "fft.irfft", "istft", "linalg.lstsq"),
    *(
        "linalg.matrix_rank",
        "linalg.tensorinv",
        "linalg.tensorsolve",
        "masked.amin",
        "masked.cumprod",
        "nn.functional.bilinear",
    ),
    *("nn.functional.binary_cross_entropy_with_logits", "nn.functional.fractional_max_pool3d", "nn.functional.one_hot"),
    *(
        "nn.functional.gaussian_nll_loss",
        "nn.functional.pdist",
        "nn.functional.silu",
        "nn.functional.unfold",
        "masked.prod",
    ),
    *("sigmoid", "resize_as_", "histogramdd", "narrow", "nn.functional.multi_head_attention_forward"),
}
"""Entries of other names that need operators of the catalog."""

_UNIQUE, _OTHERS = [], []
for _entry in _entries():
    (_OTHERS if definition_of(_entry) else _UNIQUE).append(_entry)

GROUPS = [*(_UNIQUE[start : start + 8] for start in range(0, len(_UNIQUE), 8)), *([entry] for entry in _OTHERS)]
"""Entries that share one export; alone those whose results are judged by what defines them."""


def _sample(entry: str) -> Call:
    with silenced():
        calls = database.calls_of(entry, database.dtypes_of(entry)[0])
        return next(call for call in calls if call.runs())


@pytest.mark.quick("empty_permuted", every=26)
@pytest.mark.parametrize("entries", GROUPS, ids=lambda entries: f"{entries[0]}-{len(entries)}")
def test_entries_are_exported_and_proved(entries: list[str]) -> None:
    checker = Checker(Way())

    def one_export(samples: Sequence[Sample]) -> Checked:
        return checker.check(entries[0], [call for _, call in samples])

    samples = [(number, _sample(entry)) for number, entry in enumerate(entries)]
    failed = {
        entries[number]: f"{checked.status}: {checked.error}"
        for group, checked in verdicts(one_export, in_batches(samples))
        for number, _ in group
        if checked.status != "pass"
    }
    assert failed == {}
