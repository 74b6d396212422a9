"""What tests of one process must not see of each other, and which tests belong in one process."""

from __future__ import annotations

import os
import signal
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from browser import chromium, page  # noqa: F401 - fixtures, one browser for all files

if "PYTEST_XDIST_WORKER" in os.environ:
    # The workers share the cores: threads of torch beside those of another worker wait for each other. It is read once,
    # by the first import of torch, here and in the processes that tests start.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import opbridge.verbs  # noqa: F401 - installs the hooks of the old ways, which every user of a verb has

_TOGETHER = (
    *("test_environments", "test_kernels_library", "test_kernels_onnxruntime", "test_legacy_functions"),
    *("test_legacy_table", "test_linalg_eig", "test_migrate", "test_opsets", "test_random", "test_torch_kernel"),
)
"""Files whose tests share something that takes long to make: each runs in one worker of pytest-xdist."""

_NEWEST = (
    *("test_bisection", "test_cli", "test_compare", "test_complex_linalg", "test_complex_pairs", "test_conformance"),
    *("test_conformance_page", "test_crash_site", "test_diagnose", "test_docs", "test_element_types"),
    *("test_engine_abilities", "test_engine_executorch", "test_engine_ncnn", "test_engine_openppl"),
    *("test_engine_tensorrt_rtx", "test_engine_tvm", "test_engines_together", "test_entry", "test_environments"),
    *("test_examples", "test_findings", "test_fuse", "test_install", "test_isolation", "test_journal"),
    *("test_kernel_rung", "test_kernels_compiler", "test_kernels_python", "test_kernels_sanitizers", "test_layout"),
    *("test_linalg", "test_linalg_eig", "test_linalg_iterations", "test_migrate"),
    *("test_models", "test_new_op", "test_old_opsets", "test_onnx_file", "test_onnx_flow", "test_onnx_input"),
    *("test_op_db", "test_ops_nn", "test_opsets", "test_planted_faults", "test_public_api", "test_reduce"),
    *("test_report_files", "test_report_page", "test_rewriters", "test_robustness", "test_sources", "test_surgery"),
    *("test_test_op", "test_timings", "test_verify_budget", "test_verify_bundles", "test_verify_faults"),
    *("test_verify_modes", "test_view"),
)
"""Files about opbridge alone, or long: one set of versions is enough for them."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of these files."""
    for item in items:
        if item.path.stem in _NEWEST:
            item.add_marker(pytest.mark.newest)


def pytest_configure() -> None:
    """A shell starts what runs in the background with SIGINT ignored, and programs that tests start inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with a model, and caches of its own."""
    from command_lines import small_model

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setenv("SLOW", str(tmp_path / "slow"))
    small_model(tmp_path / "m.onnx")
    return tmp_path


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests go to the workers one by one, as by default, but those of some files together, and these first."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return file if PurePosixPath(file).stem in _TOGETHER else nodeid

    return Scheduling(config, log)
