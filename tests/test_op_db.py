"""The quick part of ``opbridge conformance``: an entry of PyTorch's operator database for each operator of the catalog.

``test_ops.py`` has those whose results are compared digit by digit; here are all others, on one sample each, judged as
``opbridge verify`` judges.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

from test_ops import NAMES_IN_DATABASE  # noqa: E402

from opbridge.catalog import Catalog  # noqa: E402
from opbridge.conformance import database  # noqa: E402
from opbridge.conformance.applicability import NOT_APPLICABLE  # noqa: E402
from opbridge.conformance.check import Checker  # noqa: E402
from opbridge.conformance.results import Way  # noqa: E402
from opbridge.silence import silenced  # noqa: E402

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

ENTRIES = _entries()[::2]
"""Every other one, for time."""


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_is_exported_and_proved(entry: str) -> None:
    calls = database.calls_of(entry, database.dtypes_of(entry)[0])
    with silenced():
        chosen = next(call for call in calls if call.runs())
    checked = Checker(Way()).check(entry, [chosen])
    assert checked.status == "pass", checked.error
