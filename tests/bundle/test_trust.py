"""Bundles of strangers: nothing in them runs without consent, and whoever looks at one is told what to do.

Each attack has a payload that writes a file. A test checks that the file is absent without consent, and for the routes
that consent opens, that it is there with consent: otherwise the payload would prove nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_lines import Ran
from one_node import save
from strangers import (
    PASSED,
    PROGRAM,
    RELU,
    hostile_program,
    kernels,
    make,
    of_a_stranger,
    rewritten,
    with_entry,
    with_kernels,
)

import opbridge
from opbridge import engines, user_key
from opbridge.bundle.bundle import Bundle, read_bundle
from opbridge.bundle.write import write_side_file
from opbridge.errors import InputError, OpbridgeError
from opbridge.report.written import render

X = np.array([-1, 2], np.float32)


def refuses(match: str, fix: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    with pytest.raises(InputError, match=match) as caught:
        function(*args, **kwargs)
    assert fix in caught.value.fix


# One's own bundles.


def test_ones_own_bundle_is_trusted_and_a_strangers_is_not(tmp_path: Path) -> None:
    bundle = make(tmp_path / "b", verification=lambda _: PASSED)
    assert read_bundle(bundle).trust == "own"
    assert read_bundle(bundle).verified is True
    shutil.copytree(bundle, tmp_path / "copy")
    assert read_bundle(tmp_path / "copy").trust == "own"
    of_a_stranger(bundle)
    assert read_bundle(bundle).trust == "none"
    assert read_bundle(bundle, trust=True).trust == "given"


def test_a_bundle_without_marks_is_a_strangers(tmp_path: Path) -> None:
    bundle = make(tmp_path / "b")
    (bundle / "marks.json").unlink()
    assert read_bundle(bundle).trust == "none"
    assert opbridge.load(bundle)(X)[0].tolist() == [0, 2]


def test_a_mark_is_of_one_bundle_and_one_content(tmp_path: Path) -> None:
    one, other = make(tmp_path / "one"), make(tmp_path / "other", {"entry": "a.py:b"})
    shutil.copy(one / "marks.json", other / "marks.json")
    assert read_bundle(other).trust == "none"
    assert read_bundle(rewritten(one, lambda manifest: manifest.update(entry="evil.py:model"))).trust == "none"


@pytest.mark.parametrize("content", ["", "[]", '{"bundle.json": 1}', '{"bundle.json": "é"}', "[" * 100_000])
def test_damaged_marks_are_no_marks(tmp_path: Path, content: str) -> None:
    bundle = make(tmp_path / "b")
    (bundle / "marks.json").write_text(content)
    assert read_bundle(bundle).trust == "none"


def test_the_key_is_private_and_made_once(tmp_path: Path) -> None:
    bundle = make(tmp_path / "b")
    assert user_key.key_file().stat().st_mode & 0o777 == 0o600
    assert os.listdir(user_key.key_file().parent) == ["key"]
    code = f"import sys; from opbridge.bundle.bundle import read_bundle; print(read_bundle({str(bundle)!r}).trust)"
    started = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate()[0] for process in started] == ["own\n", "own\n"]


def test_a_key_that_others_can_read_is_not_used(tmp_path: Path) -> None:
    bundle = make(tmp_path / "b")
    assert user_key.key_file().is_relative_to(tmp_path.parent)
    user_key.key_file().chmod(0o644)
    user_key._key_of.cache_clear()
    refuses("can be read or written by other users", "chmod 600", read_bundle, bundle)
    user_key.key_file().chmod(0o600)
    user_key.key_file().write_bytes(b"short")
    refuses("has 5 bytes instead of 32", "delete it", read_bundle, bundle)


def test_without_a_place_for_a_key_an_export_still_succeeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    bundle = make(tmp_path / "b", verification=lambda _: PASSED)
    assert read_bundle(bundle).verified is True
    user_key._key_of.cache_clear()
    assert read_bundle(bundle).trust == "none"


# Kernels.


def test_the_kernels_of_a_stranger_do_not_run(tmp_path: Path, library: Path, payload: Path) -> None:
    bundle = of_a_stranger(with_kernels(tmp_path / "b", library))
    with pytest.warns(UserWarning, match=r"not made by you .* function bodies run instead.*--trust"):
        session = opbridge.load(bundle)
    assert session(X)[0].tolist() == [0, 2]
    assert not payload.exists()
    with contextlib.suppress(OpbridgeError):
        opbridge.load(bundle, trust=True, isolated=True)
    assert payload.exists()


def test_without_function_bodies_it_is_refused(tmp_path: Path, library: Path, payload: Path) -> None:
    bundle = of_a_stranger(with_kernels(tmp_path / "b", library, optional=False))
    refuses(r"not made by you|needs the bundle's kernels", "--trust", opbridge.load, bundle)
    refuses(r"needs the bundle's kernels", "trust=True", read_bundle(bundle).runs, "onnxruntime")
    assert not payload.exists()


@pytest.mark.parametrize("name", ["../evil.so", "evil.so", "/tmp/evil.so"])
@pytest.mark.parametrize("given", [False, True])
def test_a_library_that_is_not_listed_never_runs(
    tmp_path: Path, library: Path, payload: Path, name: str, given: bool
) -> None:
    shutil.copy(library, tmp_path / "evil.so")
    bundle = rewritten(make(tmp_path / "b"), lambda manifest: manifest.update(kernels(True, name)))
    refuses("lists the library .*evil.so' without its sha256", "copy the bundle", opbridge.load, bundle, trust=given)
    assert not payload.exists()


@pytest.mark.parametrize(
    "name", ["../evil.so", "/tmp/evil.so", "a//b", "./b", "a\\..\\b", "c:b", "", "a\u202eb", "a\nb", "\ud800"]
)
def test_a_listed_file_is_inside(tmp_path: Path, name: str) -> None:
    listed = {"sha256": "0", "bytes": 0}
    bundle = rewritten(make(tmp_path / "b"), lambda manifest: manifest["files"].update({name: listed}))
    refuses("inside of the bundle", "copy the bundle", read_bundle, bundle)


@pytest.mark.parametrize(
    ("engine", "file"),
    [
        ("tvm", "model.tvm.so"),
        ("executorch", "model.executorch.pte"),
        ("tensorrt_rtx", "model.tensorrt_rtx.engine"),
    ],
)
def test_machine_code_for_an_engine_is_refused(tmp_path: Path, engine: str, file: str) -> None:
    main = file if engine == "executorch" else "model.onnx"
    models = [{"file": main, "engines": [engine], "opset": None, "ir_version": None}]
    bundle = of_a_stranger(make(tmp_path / "b", {"models": models}, files={file: b"code"}))
    refuses(f"{file} is machine code for {engine}", "--trust", opbridge.load, bundle, engine)
    assert read_bundle(bundle, trust=True).loadable(engines.get(engine)) == bundle / main


@pytest.mark.parametrize("own", [False, True])
def test_machine_code_that_was_added_is_refused(tmp_path: Path, own: bool) -> None:
    models = [{"file": "model.onnx", "engines": ["tvm"], "opset": 20, "ir_version": 10}]
    bundle = make(tmp_path / "b", {"models": models})
    (bundle / "model.tvm.so").write_bytes(b"code")
    if own:
        refuses("bundle.json does not list", "delete it", opbridge.load, bundle, "tvm")
        refuses("bundle.json does not list", "delete it", opbridge.load, bundle / "model.onnx", "tvm")
    else:
        refuses("not listed in the manifest", "delete it", opbridge.load, of_a_stranger(bundle), "tvm")


def test_machine_code_beside_a_model_is_refused(tmp_path: Path) -> None:
    save(RELU, tmp_path / "model.onnx")
    (tmp_path / "model.tvm.so").write_bytes(b"code")
    refuses("machine code beside the model", "--trust", opbridge.load, tmp_path / "model.onnx", "tvm")


# The reference that a bundle brings along.


def test_verify_imports_nothing_that_a_stranger_names(
    tmp_path: Path, payload: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = of_a_stranger(with_entry(tmp_path / "b"))
    refuses("names evil.py:model as the model to compare with", "--reference", opbridge.verify, bundle)
    monkeypatch.chdir(tmp_path)
    refuses("names evil.py:model as the model to compare with", "--reference", opbridge.verify, bundle)
    assert not payload.exists()
    with contextlib.suppress(OpbridgeError):
        opbridge.verify(bundle, trust=True)
    assert payload.exists()


def test_sources_of_ones_own_bundle_that_were_changed_are_not_followed(tmp_path: Path, payload: Path) -> None:
    bundle = with_entry(tmp_path / "b")
    (bundle / "sources.json").write_text(json.dumps({"entry_path": str(tmp_path / "evil.py"), "more": 1}))
    refuses("exported from evil.py:model, which is not here", "--reference", opbridge.verify, bundle)
    assert not payload.exists()


def test_the_file_of_an_onnx_model_that_a_stranger_names_is_not_read(tmp_path: Path) -> None:
    save(RELU, tmp_path / "mine.onnx")
    where = {"entry": str(tmp_path / "mine.onnx"), "original": {"sha256": "0"}}
    refuses("names .*mine.onnx", "--reference", opbridge.verify, of_a_stranger(make(tmp_path / "b", where)))


def test_a_saved_program_of_a_stranger_is_not_read(tmp_path: Path, payload: Path) -> None:
    program = hostile_program(tmp_path / "program.pt2", payload)
    payload.unlink(missing_ok=True)
    bundle = of_a_stranger(make(tmp_path / "b", files={"reference.pt2": program}))
    refuses("reference.pt2, a saved program", "--reference", opbridge.verify, bundle)
    assert not payload.exists()
    with contextlib.suppress(OpbridgeError):
        opbridge.verify(bundle, trust=True)
    assert payload.exists()


def test_no_engine_is_installed_for_a_stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = [{"file": "model.onnx", "engines": ["onnxruntime==1.2.3"], "opset": 20, "ir_version": 10}]
    bundle = of_a_stranger(make(tmp_path / "b", {"models": models}))
    monkeypatch.setattr("opbridge.engines.environments.subprocess.run", lambda *_, **__: pytest.fail("installed"))
    for verb in (opbridge.verify, lambda path: opbridge.reduce(path, path=tmp_path / "small")):
        refuses("for onnxruntime==1.2.3, which opbridge would install", "--engine onnxruntime", verb, bundle)


# A result that a stranger wrote.


def test_a_strangers_verification_is_a_claim(tmp_path: Path) -> None:
    bundle = read_bundle(of_a_stranger(make(tmp_path / "b", verification=lambda _: PASSED)))
    assert bundle.verified is None
    assert bundle.claim
    assert repr(bundle).endswith(": claimed passed, for onnxruntime)")
    assert bundle.verification == {**PASSED, "bundle": bundle.manifest["sha256"]}
    assert "Claimed, not checked here: matches PyTorch" in render(bundle, "html")
    assert "Claimed, not checked here" in render(bundle, "markdown")
    assert "claimed, not checked here" in render(bundle, "junit")
    # Verified here, it is a result of this user, who may then be another stranger's stranger.
    write_side_file(bundle, "verification.json", PASSED)
    assert bundle.verified is True
    assert not bundle.claim
    assert read_bundle(bundle.path).trust == "none"


def test_a_verification_that_was_changed_is_a_claim(tmp_path: Path) -> None:
    bundle = make(tmp_path / "b", verification=lambda _: {**PASSED, "verdict": "failed"})
    assert read_bundle(bundle).verified is False
    (bundle / "verification.json").write_text(json.dumps(PASSED))
    assert read_bundle(bundle).verified is None
    assert read_bundle(bundle).trust == "own"


def test_a_verification_of_another_bundle_is_none(tmp_path: Path) -> None:
    one = make(tmp_path / "one", verification=lambda _: PASSED)
    other = make(tmp_path / "other", {"entry": "a.py:b"})
    shutil.copy(one / "verification.json", other / "verification.json")
    assert read_bundle(one).verification is not None
    assert read_bundle(other).verification is None
    assert read_bundle(of_a_stranger(other)).verified is None


# Anything that is not a listed file.

ADDED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "file": (lambda bundle: (bundle / "numpy.py").write_text(PROGRAM), "numpy.py in it is not listed"),
    "hidden file": (lambda bundle: (bundle / ".hidden").write_text(""), r"\.hidden in it is not listed"),
    "file in a folder": (lambda bundle: (bundle / "a").mkdir() or (bundle / "a" / "b").touch(), "a/b in it is not li"),
    "link": (lambda bundle: (bundle / "failing_input.npz").symlink_to("/etc/hosts"), "failing_input.npz in it is a li"),
    "link to a folder": (lambda bundle: (bundle / "kernels").symlink_to("/etc"), "kernels in it is a link"),
    "pipe": (lambda bundle: os.mkfifo(bundle / "report.html"), "report.html in it is neither a file nor a folder"),
}


@pytest.mark.parametrize("name", ADDED)
def test_anything_else_is_refused(tmp_path: Path, name: str) -> None:
    bundle = of_a_stranger(make(tmp_path / "b"))
    add, message = ADDED[name]
    add(bundle)
    refuses(f"was not made by you on this machine, and {message}", "delete it", opbridge.load, bundle)


def test_a_listed_file_is_not_a_link(tmp_path: Path) -> None:
    bundle = of_a_stranger(make(tmp_path / "b"))
    (bundle / "model.onnx").rename(tmp_path / "model.onnx")
    (bundle / "model.onnx").symlink_to(tmp_path / "model.onnx")
    refuses("model.onnx in it is a link", "cp -rL", opbridge.load, bundle)
    assert opbridge.load(bundle, trust=True)(X)[0].tolist() == [0, 2]


@pytest.mark.parametrize("name", ["bundle.json", "model.onnx"])
def test_a_pipe_is_not_waited_for(tmp_path: Path, name: str) -> None:
    bundle = make(tmp_path / "b")
    (bundle / name).unlink()
    os.mkfifo(bundle / name)
    refuses("not a regular file", "", read_bundle, bundle)
    assert stat.S_ISFIFO((bundle / name).stat().st_mode)


# The command line.

COMMANDS: dict[str, list[str]] = {
    "run": ["run", "b", "--input", "x.npz", "-o", "y.npz"],
    "verify": ["verify", "b"],
    "compare": ["compare", "b", "m.onnx"],
    "reduce": ["reduce", "b", "-o", "small"],
    "report": ["report", "b"],
}


@pytest.mark.quick("run", "verify", "report")
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_runs_a_strangers_code(
    tmp_path: Path,
    library: Path,
    payload: Path,
    command: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    save(RELU, tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", x0=X)
    (tmp_path / "evil.py").write_text(PROGRAM)
    change = {"entry": "evil.py:model", **kernels(True)}
    of_a_stranger(make(tmp_path / "b", change, files={"kernels/evil.so": library.read_bytes()}))
    ran = Ran(capfd, *COMMANDS[command])
    assert not payload.exists()
    if command in ("verify", "reduce"):
        assert ran.code == 1
        assert "--trust" in ran.err
    elif command == "run":
        assert ran.code == 0
        assert "function bodies run instead" in ran.out
    elif command == "compare":
        assert ran.code == 0
        assert "with function bodies" in ran.out
    if command != "report":
        Ran(capfd, *COMMANDS[command], "--trust")
        assert payload.exists()


def test_a_stranger_is_verified_with_ones_own_reference(
    tmp_path: Path, library: Path, payload: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    entry = tmp_path / "mine.py"
    entry.write_text(
        "import torch\ndef model():\n    x = torch.ones(3)\n"
        "    return dict(model=torch.nn.ReLU(), args=(x,), dynamic_shapes={'input': {0: 'n'}}, input_names=['x0'])\n"
    )
    bundle = of_a_stranger(with_kernels(tmp_path / "b", library))
    ran = Ran(capfd, "verify", bundle, "--reference", f"{entry}:model")
    assert ran.code == 0, ran.err
    assert "onnxruntime with function bodies: passed" in ran.out
    assert "its kernels were not run; --trust" in " ".join(ran.out.split())
    assert not payload.exists()
    assert Bundle(bundle, json.loads((bundle / "bundle.json").read_text())).verified is True
