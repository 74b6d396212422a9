"""The command line: what it passes on, what it prints, what stays off the screen, and its exit codes."""

from __future__ import annotations

import dataclasses
import errno
import json
import logging
import os
import pkgutil
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import opbridge
import opbridge.cli
from opbridge.bundle.bundle import Bundle
from opbridge.bundle.write import write_bundle
from opbridge.cli import _outcome, main
from opbridge.errors import CaptureError, InputError

pytestmark = pytest.mark.newest

ENTRY = "import torch\n\ndef model():\n    return torch.nn.ReLU(), (torch.ones(2),)\n"
COMPARISON = {
    "output": "y", "case": "example sizes", "status": "within budget", "max_abs": 1e-7, "max_rel": 1e-7,
    "engine_error": 1.5, "torch_error": 1.25, "ratio": 0.2, "budget": 7.5, "detail": "",
}  # fmt: skip
VERIFICATION: dict[str, Any] = {
    "engine": "onnxruntime", "verdict": "passed", "comparisons": [COMPARISON],
    "seconds": {"runs": 0.5, "overhead": 0.1},
    "cases": [
        {"name": "example sizes", "sizes": {}, "verdict": "passed", "eager_matches": True, "error": None, "notes": []}
    ],
    "seed": 7, "error": None, "eager_matches_capture": True,
}  # fmt: skip
DIAGNOSIS: dict[str, Any] = {
    "ok": True, "opset": 19, "opset_reason": "aten::grid needs it", "engines": {"onnxruntime": "1.31.1"},
    "operators": [
        {"target": "aten::cummax", "rung": "translate", "provider": "catalog", "count": 2, "detail": "",
         "sources": ["net.py:12", "net.py:14"], "links": {"torch": True, "mapping": False, "kernel": None}}
    ],
    "findings": [
        {"code": "no-mapping", "target": "aten::cummax", "message": "torch.onnx has no mapping for aten::cummax.",
         "fix": "the catalog's is used.", "severity": "warning", "rung": "translate", "mended": True,
         "sources": ["net.py:12"]}
    ],
    "seconds": 0.5,
}  # fmt: skip


@dataclasses.dataclass
class Ran:
    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)

    @property
    def log(self) -> str:
        path = self.data["log"] if self.out.startswith("{") else self.err.rsplit("log: ", 1)[1].strip()
        return Path(path).read_text()


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "150")
    monkeypatch.setattr("opbridge.cli._progress._PATIENCE", 60.0)
    (tmp_path / "net.py").write_text(ENTRY)


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    def run(*argv: str) -> Ran:
        code = main(argv)
        return Ran(code, *capfd.readouterr())

    return run


@pytest.fixture
def replace(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[..., Any]], list[Any]]:
    """Put a function in place of a public one; its calls are recorded."""

    def replace(name: str, function: Callable[..., Any]) -> list[Any]:
        calls: list[Any] = []

        def recorded(*args: Any, **kwargs: Any) -> Any:
            calls.append((args, kwargs))
            return function(*args, **kwargs)

        monkeypatch.setattr(f"opbridge.cli.{name}.{name}", recorded)
        return calls

    return replace


def result(data: dict[str, Any], **attributes: Any) -> SimpleNamespace:
    return SimpleNamespace(to_dict=lambda: data, **attributes)


def raising(error: BaseException) -> Callable[..., Any]:
    def function(*_: Any, **__: Any) -> Any:
        raise error

    return function


def subprocess_run(*argv: str, code: str | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *(["-c", code] if code else ["-m", "opbridge"]), *argv]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)


# Subcommands and usage.


def test_every_file_is_a_subcommand_and_a_new_one_edits_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., Ran]
) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "hello.py").write_text(
        "from opbridge.cli._options import ONNX, add_command\nfrom opbridge.cli._outcome import Outcome\n"
        "GROUP = ONNX\nEXAMPLE = 'opbridge hello'\n"
        "def register(commands):\n    add_command(commands, 'hello', run, help='say hello')\n"
        "def run(arguments, progress):\n    return Outcome({'hello': 'world'}, str)\n"
    )
    monkeypatch.setattr(opbridge.cli, "__path__", [*opbridge.cli.__path__, str(tmp_path / "more")])
    assert run("hello", "--json").data == {"hello": "world"}


def test_help_names_every_subcommand() -> None:
    done = subprocess_run("--help")
    assert done.returncode == 0
    for module in pkgutil.iter_modules(opbridge.cli.__path__):
        assert module.name.startswith("_") or re.search(rf"\n  {module.name.replace('_', '-')}\s", done.stdout)
    assert "Exit codes: 0 success" in done.stdout
    assert subprocess_run().stdout == done.stdout


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("exprot",), "there is no command 'exprot'; did you mean export?"),
        (("zzz",), "there is no command 'zzz'; opbridge --help lists the commands."),
        (("export", "net.py:model"), "the following arguments are required: -o/--output"),
        (("diagnose", "net.py:model", "--opset", "new"), "argument --opset: 'new' is neither an integer nor lowest"),
        (("diagnose", "net.py:model", "--engine", ","), "argument --engine: expected at least one name"),
    ],
)
def test_wrong_usage_is_2(run: Callable[..., Ran], argv: tuple[str, ...], message: str) -> None:
    ran = run(*argv)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert "usage: opbridge" in ran.err
    ran = run(*argv, "--json")
    assert ran.code == 2
    assert message in ran.data["message"]


# What each passes on and prints.


def test_diagnose(run: Callable[..., Ran], replace: Callable[..., Any]) -> None:
    calls = replace("diagnose", lambda *_, **__: result(DIAGNOSIS, ok=True, details=""))
    given = ("diagnose", "net.py:model", "--engine", "onnxruntime,other", "--opset", "20", "--ops", "mine")
    ran = run(*given, "-v")
    assert (ran.code, ran.err) == (0, "")
    for text in ("aten::cummax", "net.py:12 (+1)", "fixed by a translation", "opset 19"):
        assert text in ran.out
    assert "fix:" not in ran.out, "the finding is mended"
    short = run(*given).out
    assert "aten::cummax" in short
    assert "fix:" not in short, "what opbridge fixed by itself needs no action"
    (args, kwargs), *_ = calls
    assert type(args[0]).__name__ == "ReLU"
    assert callable(kwargs.pop("progress"))
    assert kwargs == {"engines": ("onnxruntime", "other"), "dynamic_shapes": None, "opset": 20, "ops": ("mine",)}
    assert run("diagnose", "net.py:model", "--json").data == DIAGNOSIS


def test_control_flow_that_was_converted_is_named(run: Callable[..., Ran], replace: Callable[..., Any]) -> None:
    message = "Control flow that depends on the values of tensors became If (net.py:12)."
    finding = DIAGNOSIS["findings"][0] | {"code": "converted-control-flow", "message": message, "severity": "info"}
    replace("diagnose", lambda *_, **__: result(DIAGNOSIS | {"findings": [finding]}, ok=True, details=""))
    assert message in run("diagnose", "net.py:model").out.splitlines()


def test_diagnose_is_1_if_a_link_stays_broken(run: Callable[..., Ran], replace: Callable[..., Any]) -> None:
    finding = DIAGNOSIS["findings"][0] | {"mended": False, "severity": "error", "rung": None, "sources": []}
    broken = DIAGNOSIS | {"ok": False, "operators": [], "opset": None, "opset_reason": "", "findings": [finding]}
    replace("diagnose", lambda *_, **__: result(broken, ok=False, details=""))
    ran = run("diagnose", "net.py:model")
    assert ran.code == 1
    assert "error no-mapping: aten::cummax" in ran.out
    assert "1 problem that opbridge can't fix." in ran.out
    assert run("diagnose", "net.py:model", "--json").code == 1


def bundle(verification: dict[str, Any] | None = VERIFICATION, model: bytes = b"model") -> Bundle:
    manifest = {
        "models": [{"file": "model.onnx", "engines": ["onnxruntime"], "opset": 19, "ir_version": 10}],
        "opset_reason": "DeformConv needs it",
        "operators": [{"target": "aten::relu", "rung": "native", "provider": "torch", "count": 3, "detail": ""}],
        "inputs": [{"name": "x", "dtype": "float32", "shape": [2]}],
        "outputs": [{"name": "y", "dtype": "float32", "shape": [2]}],
    }
    return write_bundle(
        "b",
        manifest,
        lambda folder: (folder / "model.onnx").write_bytes(model) and None,
        sources={"operators": {"aten::relu": ["net.py:4"]}},
        verification=lambda _: verification,
        overwrite=True,
    )


def test_export(run: Callable[..., Ran], replace: Callable[..., Any]) -> None:
    calls = replace("export", lambda *_, **__: bundle())
    ran = run(
        "export",
        "net.py:model",
        "-o",
        "b",
        "--opset",
        "19",
        "--with-reference",
        "--external-data",
        "--seed",
        "7",
        "-v",
    )
    assert (ran.code, ran.err) == (0, "")
    for text in ("aten::relu", "native", "net.py:4", "opset 19 (DeformConv needs it)", "bundle: b"):
        assert text in ran.out
    for text in ("y", "1.5 ", "1.25", "7.5", "20%", "pass", "onnxruntime: passed (1 case, seed 7, 0.6 s)"):
        assert text in ran.out
    kwargs = calls[0][1]
    assert callable(kwargs.pop("progress"))
    assert kwargs == {
        "path": "b", "engines": ("onnxruntime",), "dynamic_shapes": None, "opset": 19, "input_names": None,
        "output_names": None, "verify": True, "ops": (), "overwrite": False, "with_reference": True,
        "external_data": True, "ir_version": None, "state": False, "assume": False, "seed": 7,
        "entry": "net.py:model", "inputs": None,
        "edge_sizes": False, "special_values": False, "shrink": None, "bisect": True, "trace": False,
        "nan": "auto",
        "kernels": "auto",
    }  # fmt: skip


def test_export_is_1_after_a_failed_verification_and_keeps_the_bundle(
    run: Callable[..., Ran], replace: Callable[..., Any]
) -> None:
    differs = COMPARISON | {"status": "differs", "engine_error": "inf", "ratio": "inf", "detail": "3 of 8 elements"}
    failed = VERIFICATION | {"verdict": "failed", "comparisons": [COMPARISON, differs]}
    replace("export", lambda *_, **__: bundle(failed))
    ran = run("export", "net.py:model", "-o", "b")
    assert ran.code == 1
    assert "y (example sizes): mismatch: 3 of 8 elements" in ran.out
    assert "onnxruntime: failed" in ran.out
    assert Path("b/bundle.json").exists()
    ran = run("export", "net.py:model", "-o", "b", "--overwrite", "--json")
    assert (ran.code, ran.data["verified"]) == (1, False)


def test_export_without_verification(run: Callable[..., Ran], replace: Callable[..., Any]) -> None:
    calls = replace("export", lambda *_, **__: bundle(None))
    ran = run("export", "net.py:model", "-o", "b", "--no-verify")
    assert ran.code == 0
    assert "not verified" in ran.out
    assert calls[0][1]["verify"] is False


def test_verify(run: Callable[..., Ran], replace: Callable[..., Any]) -> None:
    calls = replace("verify", lambda *_, **__: result(VERIFICATION, passed=True))
    np.savez("a.npz", x=np.ones(2))
    np.savez("b.npz", x=np.zeros(2))
    ran = run(
        "verify", "b", "--reference", "net.py:model", "--inputs", "a.npz", "b.npz", "--rtol", "1e-3", "--ops", "mine"
    )
    assert ran.code == 0
    assert "onnxruntime: passed" in ran.out
    args, kwargs = calls[0]
    assert args == ("b",)
    assert {name: case["x"].tolist() for name, case in kwargs.pop("inputs").items()} == {
        "a.npz": [1, 1],
        "b.npz": [0, 0],
    }
    assert callable(kwargs.pop("progress"))
    assert kwargs == {
        "reference": "net.py:model", "engines": None, "seed": None, "rtol": 1e-3, "atol": None, "ops": ("mine",),
        "edge_sizes": False, "special_values": False, "shrink": None, "bisect": True, "trace": False, "timings": False,
        "trust": False,
    }  # fmt: skip
    assert run("verify", "b", "--json").data == VERIFICATION


@pytest.mark.parametrize("verdict", ["failed", "error"])
def test_verify_is_1_if_it_does_not_pass(run: Callable[..., Ran], replace: Callable[..., Any], verdict: str) -> None:
    case = VERIFICATION["cases"][0] | {
        "error": "SIGSEGV in the engine",
        "eager_matches": False,
        "notes": ["size 1 refused"],
    }
    data = VERIFICATION | {"verdict": verdict, "cases": [case], "comparisons": [], "error": "SIGSEGV in the engine"}
    replace("verify", lambda *_, **__: result(data, passed=False))
    ran = run("verify", "b")
    assert ran.code == 1
    assert ran.out.count("SIGSEGV") == 1
    assert "the captured graph and the module give different results" in ran.out
    assert "size 1 refused" in ran.out


# ops and doctor.


@pytest.mark.slow
def test_ops_lists_the_catalog_and_the_users_operators(
    run: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "hypot.py").write_text(
        "import opbridge\n@opbridge.decomposition('aten::hypot')\ndef hypot(self, other):\n"
        "    '''The length of (self, other).\n\n    hypot(Tensor self, Tensor other) -> Tensor'''\n    return self\n"
    )
    monkeypatch.setenv("COLUMNS", "300")
    ran = run("ops", "--ops", "mine")
    assert ran.code == 0
    for text in ("aten::hypot", "decompose", "catalog", "The length of (self, other).", "mine/hypot.py:2", "mapping"):
        assert text in ran.out
    assert "hypot.py" not in run("ops").out
    ran = run("ops", "hypot", "--ops", "mine", "--json")
    assert ran.data["target"] == "aten::hypot"
    assert "default" in ran.data["overloads"]
    assert ran.data["mappings"][0]["provider"] == "user"
    assert "Tensor self, Tensor other" in run("ops", "aten::hypot.default", "--ops", "mine").out


def test_ops_knows_what_torch_maps_and_what_nothing_maps(run: Callable[..., Ran]) -> None:
    mapped = run("ops", "torch.ops.aten.add.Tensor", "--json").data["mappings"]
    assert [(mapping["provider"], mapping["target"]) for mapping in mapped] == [("torch", "aten::add.Tensor")]
    assert "no mapping to ONNX in torch.onnx or in opbridge" in run("ops", "aten::poisson").out


def test_a_narrow_screen_cuts_nothing_off(run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    lines = run("ops", "aten::cummax").out.splitlines()
    assert ["kernel", "18", "aten::cummax"] in [line.split() for line in lines]


def test_ops_proposes_the_nearest_name(run: Callable[..., Ran]) -> None:
    ran = run("ops", "aten::softmaxx")
    assert ran.code == 1
    assert "error: There is no operator 'aten::softmaxx'" in ran.err
    assert "fix: did you mean aten::softmax" in ran.err


@pytest.mark.slow
def test_doctor_in_a_process_of_its_own() -> None:
    done = subprocess_run("doctor", "--json")
    data = json.loads(done.stdout)
    assert done.returncode == (0 if data["ok"] else 1)
    states = {component["name"]: component for component in data["components"]}
    assert states["python"]["version"] == ".".join(map(str, sys.version_info[:3]))
    assert states["numpy"]["version"] == np.__version__
    assert {"torch", "torchvision", "onnx", "onnx-ir", "onnxscript", "onnxruntime"} <= set(states)


def test_doctor_prints_the_line_that_installs_what_is_missing(
    run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    import opbridge.verbs.doctor as doctor

    versions = {"numpy": "1.0", "torch": "2.99.0+cpu", "onnx": "1.99", "onnxruntime": "1.99"}
    monkeypatch.setattr(doctor, "_version", versions.get)
    monkeypatch.setattr(doctor, "_minimums", lambda: {"numpy": "1.26", "onnxscript": "0.5.4", "torch": "2.13"})
    monkeypatch.setattr(doctor, "_import_problems", lambda _: {"onnx": "ImportError: libfoo.so"})
    monkeypatch.setattr(doctor.shutil, "which", lambda _: None)
    ran = run("doctor")
    assert ran.code == 1
    for text in (
        'numpy is too old (at least 1.26 is needed): pip install "numpy>=1.26"',
        'onnxscript is missing: pip install "onnxscript>=0.5.4"',
        "onnx is broken (ImportError: libfoo.so): pip install --force-reinstall onnx",
        "C++ compiler is missing: ",
    ):
        assert text in ran.out
    assert " torch is" not in ran.out


def test_doctor_survives_a_package_that_crashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from opbridge.verbs.doctor import _import_problems

    (tmp_path / "crashing.py").write_text("import os\nos.abort()\n")
    (tmp_path / "refusing.py").write_text("raise ImportError('no')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    problems = _import_problems(["json", "crashing", "refusing"])
    assert problems == {"crashing": "importing ends the process with code -6", "refusing": "ImportError: no"}


# run, with a real model.


@pytest.fixture(scope="module")
def model() -> bytes:
    import onnx

    text = '<ir_version: 8, opset_import: ["" : 18]> net (float[2] x) => (float[2] y) { y = Add(x, x) }'
    return onnx.parser.parse_model(text).SerializeToString()


@pytest.fixture
def loaded(model: bytes) -> Bundle:
    np.save("x.npy", np.array([1, 2], np.float32))
    return bundle(model=model)


@pytest.mark.usefixtures("loaded")
def test_run(run: Callable[..., Ran]) -> None:
    ran = run("run", "b", "--input", "x=x.npy", "-o", "y.npz")
    assert (ran.code, ran.err) == (0, "")
    assert "written to y.npz" in ran.out
    np.testing.assert_array_equal(np.load("y.npz")["y"], [2, 4])
    np.savez("x.npz", x=np.array([5, 6], np.float32))
    ran = run("run", "b", "--input", "x.npz", "-o", "z.npz", "--json")
    assert ran.data["outputs"] == [{"name": "y", "dtype": "float32", "shape": [2], "min": 10, "mean": 11, "max": 12}]
    np.testing.assert_array_equal(np.load("z.npz")["y"], [10, 12])
    assert not [name for name in os.listdir() if name.startswith(".")]


@pytest.mark.usefixtures("loaded")
def test_run_needs_no_torch() -> None:
    blocked = ("torch", "onnx", "onnx_ir", "onnxscript")
    code = f"import sys; sys.modules.update(dict.fromkeys({blocked})); from opbridge.cli import main; sys.exit(main())"
    done = subprocess_run("run", "b", "--input", "x=x.npy", "-o", "y.npz", "-q", code=code)
    assert (done.returncode, done.stderr) == (0, "")
    assert np.load("y.npz")["y"].tolist() == [2, 4]


@pytest.mark.parametrize(
    ("argv", "message", "fix"),
    [
        (["--input", "z=x.npy"], "The model has no input 'z'; its inputs are: x.", "--input x=file.npy"),
        ([], "There is no array for the input x.", "add --input x=FILE.npy"),
        (["--input", "x=x.npy", "--input", "x=x.npy"], "The input 'x' is given twice.", "once"),
        (["--input", "x.npy"], "--input x.npy: expected NAME=FILE.npy, or a FILE.npz.", "--input x=x.npy"),
        (["--input", "x=gone.npy"], "There is no file gone.npy.", "check the path"),
        (["--input", "x=net.py"], "Can't read arrays from net.py: ", "numpy.save"),
        (["--input", "x=wrong.npy"], "x", ""),
        (["--input", "x=x.npy", "--engine", "onxruntime"], "There is no engine 'onxruntime'.", "'onnxruntime'"),
        (
            ["--input", "x=x.npy", "-o", "gone/y.npz"],
            "Can't write gone/y.npz: there is no folder gone.",
            "mkdir -p gone",
        ),
        (["--input", "x=x.npy", "-o", "b"], "Can't write b: it is a folder.", "b/out.npz"),
    ],
)
@pytest.mark.usefixtures("loaded")
def test_wrong_input_of_run(run: Callable[..., Ran], argv: list[str], message: str, fix: str) -> None:
    np.save("wrong.npy", np.zeros((2, 2), np.float64))
    ran = run("run", "b", *(argv if "-o" in argv else [*argv, "-o", "y.npz"]))
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("error: ")
    assert message in ran.err
    assert fix in ran.err.split("\nfix: ")[1]
    assert "Traceback" not in ran.err
    assert not Path("y.npz").exists()


def test_run_refuses_a_damaged_bundle(run: Callable[..., Ran], loaded: Bundle) -> None:
    file = loaded.path / "model.onnx"
    file.write_bytes(file.read_bytes()[:-1])
    ran = run("run", "b", "--input", "x=x.npy", "-o", "y.npz", "--json")
    assert ran.code == 1
    assert ran.data["error"] == "InputError"
    assert "b is damaged: model.onnx has" in ran.data["message"]
    assert "copy the bundle again" in ran.data["fix"]


def test_bfloat16_survives_npy() -> None:
    import ml_dtypes

    from opbridge.cli._arrays import fit, read_arrays, write_arrays
    from opbridge.engines.base import TensorSpec

    write_arrays("a.npz", {"file": np.ones(2, ml_dtypes.bfloat16), "scalar": np.float32(3)})
    specs = [TensorSpec("file", "bfloat16", (2,)), TensorSpec("scalar", "float32", ())]
    arrays = fit(read_arrays(["a.npz"]), specs)
    assert arrays["file"].dtype == ml_dtypes.bfloat16
    assert arrays["scalar"].shape == ()


def test_a_full_disk_leaves_no_output(monkeypatch: pytest.MonkeyPatch) -> None:
    from opbridge.cli._arrays import write_arrays

    monkeypatch.setattr(np.lib.format, "write_array", raising(OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(opbridge.InputError, match=r"Can't write y\.npz: No space left on device"):
        write_arrays("y.npz", {"y": np.ones(2)})
    assert not [name for name in os.listdir() if "y.npz" in name]


# All of it, for real.


@pytest.mark.slow
def test_from_a_model_to_its_results(run: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = run("diagnose", "net.py:model", "--json")
    assert (ran.code, [operator["target"] for operator in ran.data["operators"]]) == (0, ["aten::relu"])
    ran = run("export", "net.py:model", "-o", "out/net")
    assert ran.code == 0, ran.err
    for text in ("1 operator, all mapped by torch.onnx", "passed", "bundle: out/net"):
        assert text in ran.out
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert run("verify", "../out/net", "--seed", "3").code == 0
    name = json.loads(Path("../out/net/bundle.json").read_text())["inputs"][0]["name"]
    np.save("x.npy", np.array([-1, 2], np.float32))
    assert run("run", "../out/net", "--input", f"{name}=x.npy", "-o", "y.npz").code == 0
    assert [array.tolist() for array in np.load("y.npz").values()] == [[0, 2]]


def test_an_unknown_engine(run: Callable[..., Ran]) -> None:
    for command in (("diagnose", "net.py:model"), ("export", "net.py:model", "-o", "b")):
        ran = run(*command, "--engine", "onxruntime")
        assert ran.code == 1
        assert "error: There is no engine 'onxruntime'." in ran.err
        assert "fix: did you mean 'onnxruntime'?" in ran.err
    assert not Path("b").exists()


def test_the_output_of_a_missing_module_is_no_traceback(run: Callable[..., Ran]) -> None:
    ran = run("diagnose", "no_such_package:model", "--json")
    assert (ran.code, ran.err) == (1, "")
    assert ran.data["message"] == "Entry no_such_package:model: there is no module 'no_such_package'."


# Errors.


def test_an_error_has_a_fix_and_no_traceback(run: Callable[..., Ran], replace: Callable[..., Any]) -> None:
    replace(
        "export", raising(CaptureError("net.py:4 can't be captured.", fix="use torch.cond.", details="15,000 lines"))
    )
    ran = run("export", "net.py:model", "-o", "b")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("error: net.py:4 can't be captured.\nfix: use torch.cond.\nlog: ")
    assert ran.log == "15,000 lines"
    ran = run("export", "net.py:model", "-o", "b", "--json")
    assert (ran.code, ran.err) == (1, "")
    log = ran.data["log"]
    assert ran.data == {
        "error": "CaptureError",
        "message": "net.py:4 can't be captured.",
        "fix": "use torch.cond.",
        "log": log,
    }
    assert ran.log == "15,000 lines"


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda: Path("b").write_text(""), "b exists and is not a folder"),
        (lambda: Path("b/sub").mkdir(parents=True), "b exists and is not a bundle"),
        (bundle, "There is already a bundle at b."),
        (lambda: None, ""),
    ],
)
def test_the_output_is_checked_before_the_work(
    run: Callable[..., Ran], replace: Callable[..., Any], prepare: Callable[[], Any], message: str
) -> None:
    calls = replace("export", lambda *_, **__: bundle())
    prepare()
    ran = run("export", "net.py:model", "-o", "b")
    assert message in ran.err
    assert len(calls) == (0 if message else 1)


def test_a_wrong_entry(run: Callable[..., Ran]) -> None:
    ran = run("diagnose", "nett.py:model")
    assert ran.code == 1
    assert ran.err == "error: Entry nett.py:model: there is no file nett.py.\nfix: write net.py.\n"


def test_a_bug_is_told_as_one(run: Callable[..., Ran], replace: Callable[..., Any]) -> None:
    replace("verify", raising(KeyError("nodes")))
    ran = run("verify", "b")
    assert ran.code == 1
    assert "error: opbridge itself failed with KeyError: 'nodes'" in ran.err
    assert "fix: this is a bug in opbridge" in ran.err
    assert "Traceback" not in ran.err
    assert "Traceback" in ran.log
    assert run("verify", "b", "--json").data["error"] == "OpbridgeError"


def too_many_files() -> InputError:
    error = InputError("The model 'm.onnx' can't be read.", fix="check the path.")
    error.__cause__ = OSError(errno.EMFILE, "Too many open files")
    return error


NO_BUGS = {
    "a path": (OSError(errno.ENAMETOOLONG, "File name too long", "ooo"), "Can't use 'ooo': File name too long", "path"),
    "temporary files": (FileNotFoundError(2, "No usable temporary directory"), "No usable temporary", "TMPDIR"),
    "open files": (too_many_files(), "The system refused what the command needs: [Errno 24] Too many", "ulimit"),
}


@pytest.mark.parametrize("name", NO_BUGS)
def test_what_the_system_refuses_is_no_bug(name: str, run: Callable[..., Ran], replace: Callable[..., Any]) -> None:
    error, message, fix = NO_BUGS[name]
    replace("verify", raising(error))
    ran = run("verify", "b")
    assert ran.code == 1
    assert message in ran.err
    assert fix in ran.err.partition("fix:")[2]


def test_nobody_reads_what_is_printed(
    run: Callable[..., Ran], replace: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_outcome, "_drop_stdout", lambda: None)
    replace("verify", raising(BrokenPipeError()))
    ran = run("verify", "b")
    assert (ran.code, ran.err) == (141, "")


def test_without_torch_the_line_that_installs_it_is_printed(
    run: Callable[..., Ran], replace: Callable[..., Any]
) -> None:
    replace("verify", raising(ModuleNotFoundError("No module named 'torch'", name="torch.export")))
    ran = run("verify", "b")
    assert ran.code == 1
    assert "needs the Python package torch, which is not installed here" in ran.err
    assert "fix: pip install torch onnx onnx-ir onnxscript onnxruntime\n" in ran.err


def test_an_interrupt(run: Callable[..., Ran], replace: Callable[..., Any]) -> None:
    replace("verify", raising(KeyboardInterrupt()))
    ran = run("verify", "b")
    assert (ran.code, ran.err) == (130, "interrupted\n")


def test_an_interrupt_that_became_another_error(run: Callable[..., Ran], replace: Callable[..., Any]) -> None:
    def interrupted(*_: object, **__: object) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise ImportError("datetime") from None

    replace("verify", interrupted)
    ran = run("verify", "b")
    assert (ran.code, ran.err) == (130, "interrupted\n")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_waits_until_torch_is_imported(run: Callable[..., Ran], replace: Callable[..., Any]) -> None:
    imported = []

    def importing(*_: object, **__: object) -> None:
        exec("signal.raise_signal(signal.SIGINT)", {"__name__": "torch.distributed", "signal": signal})
        imported.append(True)
        time.sleep(30)

    replace("verify", importing)
    ran = run("verify", "b")
    assert (ran.code, ran.err, imported) == (130, "interrupted\n", [True])


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals there")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_that_ends_it_unwinds_the_stack(
    name: str, run: Callable[..., Ran], replace: Callable[..., Any]
) -> None:
    number = getattr(signal, name)
    before = signal.signal(number, signal.SIG_DFL)
    try:
        unwound = []

        def stopped(*_: object, **__: object) -> None:
            try:
                os.kill(os.getpid(), number)
            finally:
                unwound.append(True)

        replace("verify", stopped)
        ran = run("verify", "b")
        assert (ran.code, ran.err) == (128 + number, f"ended by {name}\n")
        assert unwound
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize(
    ("option", "value", "complaint"),
    [
        ("--time-limit", "0", "'0' is not a positive number of seconds"),
        ("--time-limit", "soon", "'soon' is not a positive number of seconds"),
        ("--memory-limit", "much", "'much' is not a size; write 4GiB"),
        ("--memory-limit", "0", "a limit of 0 bytes leaves no memory"),
    ],
)
def test_limits_that_are_none(run: Callable[..., Ran], option: str, value: str, complaint: str) -> None:
    ran = run("verify", "b", option, value)
    assert ran.code == 2
    assert complaint in ran.err


def test_limits_hold_for_the_engines_of_a_subcommand(run: Callable[..., Ran], replace: Callable[..., Any]) -> None:
    from opbridge.engines.process.limits import Limits, current_limits

    seen = []

    def verify(*_: object, **__: object) -> None:
        seen.append(current_limits())
        raise KeyboardInterrupt

    replace("verify", verify)
    run("verify", "b", "--time-limit", "2.5", "--memory-limit", "4GiB")
    run("verify", "b", "--time-limit", "inf")
    run("verify", "b")
    assert seen == [Limits(2.5, 4 << 30), Limits(None, None), Limits(600.0, None)]


def test_a_reader_that_goes_away() -> None:
    code = (
        "import sys, time\nfrom argparse import Namespace\nfrom opbridge.cli._outcome import Outcome, run_command\n"
        "arguments = Namespace(command='x', quiet=True, json=True, log_file=None)\n"
        "arguments.run = lambda *_: Outcome({'x': 'y' * 10**6}, None)\n"
        "sys.stdin.readline()\nsys.exit(run_command(arguments))"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdin is not None
    assert child.stderr is not None
    child.stdout.close()
    child.stdin.write("\n")
    child.stdin.close()
    assert child.wait(60) == 141
    assert child.stderr.read() == ""
    child.stderr.close()


# What others print.


def make_noise() -> None:
    print("noise from print")
    print("noise from stderr", file=sys.stderr)
    os.write(1, b"noise from C++ on 1\n")
    os.write(2, b"noise from C++ on 2\n")
    subprocess.run(["echo", "noise from a child"], check=True)
    handler = logging.StreamHandler()
    logging.getLogger("noisy").addHandler(handler)
    logging.getLogger("noisy").warning("noise from logging")


@pytest.fixture
def _quiet_afterwards() -> Iterator[None]:
    yield
    logging.getLogger("noisy").handlers.clear()


@pytest.mark.usefixtures("_quiet_afterwards")
def test_noise_stays_off_the_screen(run: Callable[..., Ran], replace: Callable[..., Any], tmp_path: Path) -> None:
    def verify(*_: Any, **__: Any) -> Any:
        make_noise()
        return result(VERIFICATION, passed=True)

    replace("verify", verify)
    ran = run("verify", "b", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.data == VERIFICATION
    assert list((tmp_path / "cache" / "opbridge" / "logs").iterdir()) == []


@pytest.mark.usefixtures("_quiet_afterwards")
def test_noise_is_in_the_log_of_a_failure(
    run: Callable[..., Ran], replace: Callable[..., Any], capfd: pytest.CaptureFixture[str]
) -> None:
    def verify(*_: Any, **__: Any) -> Any:
        make_noise()
        raise CaptureError("No.", fix="Yes.", details="and the details")

    replace("verify", verify)
    ran = run("verify", "b")
    assert ran.err.startswith("error: No.\nfix: Yes.\nlog: ")
    kinds = ("print", "stderr", "C++ on 1", "C++ on 2", "a child", "logging")
    assert all(f"noise from {kind}\n" in ran.log for kind in kinds)
    assert ran.log.endswith("and the details")
    # A handler that took its stream during the work does not write to the screen later.
    logging.getLogger("noisy").warning("more noise")
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("_quiet_afterwards")
def test_a_log_file_that_is_named_is_appended_to(
    run: Callable[..., Ran], replace: Callable[..., Any], tmp_path: Path
) -> None:
    def verify(*_: Any, **__: Any) -> Any:
        make_noise()
        return result(VERIFICATION, passed=True)

    replace("verify", verify)
    log = tmp_path / "mine.log"
    log.write_text("kept\n")
    ran = run("verify", "b", "--json", "--log-file", str(log))
    assert (ran.code, ran.err) == (0, "")
    assert log.read_text().startswith("kept\n")
    assert "noise from C++ on 2\n" in log.read_text()
    ran = run("verify", "b", "--log-file", str(tmp_path))
    assert ran.code == 1
    assert ran.err.startswith(f"error: The log file '{tmp_path}' can't be written: it is not a regular file.\nfix: ")


@pytest.mark.usefixtures("_quiet_afterwards")
@pytest.mark.parametrize(("option", "shown"), [("-v", False), ("-vv", True)])
def test_what_libraries_print_is_shown_on_request(
    option: str, shown: bool, run: Callable[..., Ran], replace: Callable[..., Any]
) -> None:
    def verify(*_: Any, **__: Any) -> Any:
        make_noise()
        return result(VERIFICATION, passed=True)

    replace("verify", verify)
    ran = run("verify", "b", option)
    assert ran.code == 0
    assert ("noise from C++ on 1" in ran.out) == shown


def test_warnings_stay_off_the_screen(tmp_path: Path) -> None:
    (tmp_path / "warning_net.py").write_text("import warnings\nwarnings.warn('noise from a warning')\n1 / 0\n")
    done = subprocess_run("diagnose", "warning_net.py:model", "--json", "-q")
    assert done.stderr == ""
    log = Path(json.loads(done.stdout)["log"]).read_text()
    assert "UserWarning: noise from a warning" in log
    assert "ZeroDivisionError: division by zero" in log


def test_a_failed_diagnosis_tells_its_log(run: Callable[..., Ran], replace: Callable[..., Any]) -> None:
    def diagnose(*_: Any, **__: Any) -> Any:
        print("what torch prints")
        return result(DIAGNOSIS | {"ok": False}, ok=False, details="graph " * 1000)

    replace("diagnose", diagnose)
    log = run("diagnose", "net.py:model").log
    assert log.startswith("what torch prints\ngraph graph")


def test_old_logs_are_deleted(run: Callable[..., Ran], tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "opbridge" / "logs"
    folder.mkdir(parents=True)
    for number in range(30):
        (folder / f"{'ab'[number % 2]}-20200101-0000{number:02}-1_abcd.log").touch()
    run("diagnose", "net.py")
    assert len(list(folder.iterdir())) == 20
    assert not (folder / "a-20200101-000008-1_abcd.log").exists()
    assert (folder / "b-20200101-000029-1_abcd.log").exists()


@pytest.mark.parametrize("stop", ["breakpoint()", "import pdb; pdb.set_trace()"])
def test_a_debugger_gets_the_screen_back(tmp_path: Path, stop: str) -> None:
    (tmp_path / "stopping.py").write_text(f"def model():\n    value = 40 + 2\n    {stop}\n    return value\n")
    done = subprocess_run("diagnose", "stopping.py:model", input="p 'the value is', value\np 'again'\nc\n")
    assert done.returncode == 1
    assert "42" in done.stdout
    assert "again" in done.stdout
    assert "returns a int, not a model" in done.stderr


def test_a_question_gets_the_screen_back(tmp_path: Path) -> None:
    (tmp_path / "asking.py").write_text("def model():\n    print('you said ' + input('size? '))\n    return 1\n")
    done = subprocess_run("diagnose", "asking.py:model", input="three\n")
    assert "you said three" in done.stdout


# Progress.


class Terminal:
    def __init__(self, is_terminal: bool) -> None:
        self.text = ""
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        pass


def show(monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool, quiet: bool = False, patience: float = 0.0) -> str:
    from opbridge.cli import _progress

    monkeypatch.setattr(_progress, "_PATIENCE", patience)
    stream = Terminal(is_terminal)
    stdout = sys.stdout
    with _progress.Progress(stream, quiet=quiet) as progress:  # type: ignore[arg-type]
        for message in ("capturing [red]", "verifying"):
            progress(message)
        assert sys.stdout is stdout
    return stream.text


def test_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    lines = show(monkeypatch, is_terminal=False)
    assert lines.endswith("capturing [red] ...\nverifying ...\n")
    assert " verifying" in show(monkeypatch, is_terminal=True)
    assert show(monkeypatch, is_terminal=True, patience=60) == ""
    assert show(monkeypatch, is_terminal=False, quiet=True) == ""


def test_progress_is_on_stderr_and_silenced_by_q(
    run: Callable[..., Ran], replace: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opbridge.cli._progress._PATIENCE", 0.0)
    replace("verify", lambda *_, **__: print("noise") or result(VERIFICATION, passed=True))
    ran = run("verify", "b", "--json")
    assert set(ran.err.splitlines()) == {"reading b ..."}
    assert ran.data == VERIFICATION
    assert run("verify", "b", "-q").err == ""
