"""bundle.py: appears whole, is checked before use, is byte-identical, and never replaces what is not a bundle."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest

import opbridge.atomic
from opbridge.bundle import checks
from opbridge.bundle.bundle import Bundle, read_bundle
from opbridge.bundle.checks import to_json
from opbridge.bundle.destination import check_destination
from opbridge.bundle.write import write_bundle, write_side_file
from opbridge.errors import InputError
from opbridge.proof.verify.trace import Status
from opbridge.proof.verify.verification import PASSING

MANIFEST: dict[str, Any] = {
    "entry": "examples/a.py:model",
    "models": [{"file": "model.onnx", "engines": ["onnxruntime"], "opset": 18, "ir_version": 10}],
    "inputs": [{"name": "x", "dtype": "float32", "shape": ["batch", 3]}],
    "outputs": [{"name": "y", "dtype": "float32", "shape": []}],
    "operators": [],
}


def write_model(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(b"a model")
    (folder / "kernels").mkdir()
    (folder / "kernels" / "add.h").write_bytes(b"a kernel")


def make(path: Path, **options: Any) -> Bundle:
    return write_bundle(path, MANIFEST, options.pop("write", write_model), **options)


def failing(error: BaseException) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "model.onnx").write_bytes(b"half a mo")
        raise error

    return write


def fails(match: str, fix: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    with pytest.raises(InputError, match=match) as caught:
        function(*args, **kwargs)
    assert fix in caught.value.fix


def test_a_bundle_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = make(tmp_path / "deep" / "b")
    read = read_bundle(tmp_path / "deep" / "b")
    assert read == written
    assert read.model_file("onnxruntime") == tmp_path / "deep" / "b" / "model.onnx"
    assert [spec.to_dict() for spec in read.inputs] == MANIFEST["inputs"]
    assert read.outputs[0].shape == ()
    assert set(read.manifest["files"]) == {"model.onnx", "kernels/add.h"}
    assert read.verified is None
    assert read.sources == {}
    assert json.loads(json.dumps(read.to_dict()))["manifest"]["entry"] == "examples/a.py:model"
    assert os.listdir(tmp_path / "deep") == ["b"]


def test_identical_input_gives_identical_bytes(tmp_path: Path) -> None:
    first = make(tmp_path / "1", sources={"entry_path": "/somewhere"}).path
    second = make(tmp_path / "2", verification=lambda _: {"verdict": "passed"}).path
    for name in ("bundle.json", "model.onnx"):
        assert (first / name).read_bytes() == (second / name).read_bytes()
    text = (first / "bundle.json").read_text()
    assert str(tmp_path) not in text
    assert text.endswith("}\n")


def test_folder_permissions_follow_the_umask(tmp_path: Path) -> None:
    (tmp_path / "ordinary").mkdir()
    assert make(tmp_path / "b").path.stat().st_mode == (tmp_path / "ordinary").stat().st_mode


@pytest.mark.parametrize(("verdict", "verified"), [("passed", True), ("failed", False), ("error", False)])
def test_the_verification_marks_the_bundle(tmp_path: Path, verdict: str, verified: bool) -> None:
    bundle = make(tmp_path / "b", verification=lambda _: {"verdict": verdict, "worst": float("inf")})
    assert bundle.verified is verified
    assert bundle.verification == {"verdict": verdict, "worst": "inf", "bundle": bundle.manifest["sha256"]}
    assert read_bundle(bundle.path) == bundle


def test_the_verification_sees_the_files_before_the_bundle_appears(tmp_path: Path) -> None:
    def verification(folder: Path) -> None:
        assert (folder / "model.onnx").read_bytes() == b"a model"
        assert read_bundle(folder).manifest["files"]
        assert not (tmp_path / "b").exists()
        raise FileNotFoundError("of the verification itself, so not told as a failure to write")

    with pytest.raises(FileNotFoundError, match="of the verification itself"):
        make(tmp_path / "b", verification=verification)
    assert os.listdir(tmp_path) == []
    assert make(tmp_path / "b", verification=lambda _: None).verified is None


def test_a_side_file_is_replaced_and_leaves_the_manifest_alone(tmp_path: Path) -> None:
    bundle = make(tmp_path / "b", verification=lambda _: {"verdict": "failed"})
    write_side_file(bundle, "verification.json", {"verdict": "passed"})
    write_side_file(bundle, "sources.json", {"nodes": {"n": "a.py:1"}})
    assert read_bundle(bundle.path).verified is True
    assert bundle.sources == {"nodes": {"n": "a.py:1"}}
    assert sorted(os.listdir(bundle.path)) == [
        "bundle.json",
        "kernels",
        "marks.json",
        "model.onnx",
        "sources.json",
        "verification.json",
    ]
    with pytest.raises(ValueError, match="is not one of"):
        write_side_file(bundle, "notes.txt", {})


def test_a_damaged_side_file_is_reported(tmp_path: Path) -> None:
    bundle = make(tmp_path / "b", verification=lambda _: {"verdict": "passed"})
    (bundle.path / "verification.json").write_text("[")
    fails("Can't read .*verification.json", "delete verification.json", lambda: bundle.verified)
    (bundle.path / "verification.json").write_text("[]")
    fails("holds no JSON object", "verify again", lambda: bundle.verified)


def test_only_the_bundles_engines_have_a_model(tmp_path: Path) -> None:
    fails(
        "no model for the engine 'openvino', only for onnxruntime",
        "--engine",
        make(tmp_path / "b").model_file,
        "openvino",
    )


# Reading what is no bundle, or no longer one.


def test_missing_folder(tmp_path: Path) -> None:
    fails("There is no bundle at .*gone: no such folder", "opbridge export", read_bundle, tmp_path / "gone")


def test_folder_without_manifest(tmp_path: Path) -> None:
    fails("is not a bundle: it has no bundle.json", "opbridge export", read_bundle, tmp_path)


def test_file_instead_of_a_folder(tmp_path: Path) -> None:
    bundle = make(tmp_path / "b")
    fails("model.onnx is a file; a bundle is a folder", "-o", read_bundle, bundle.path / "model.onnx")


@pytest.mark.parametrize("content", [b"a mo", b"a tampered model", b"A model", b""])
def test_truncated_or_changed_model(tmp_path: Path, content: bytes) -> None:
    bundle = make(tmp_path / "b")
    (bundle.path / "model.onnx").write_bytes(content)
    fails("is damaged: .*model.onnx", "copy the bundle again", read_bundle, bundle.path)


def test_missing_file(tmp_path: Path) -> None:
    bundle = make(tmp_path / "b")
    (bundle.path / "kernels" / "add.h").unlink()
    fails("is damaged: kernels/add.h is missing", "copy the bundle again", read_bundle, bundle.path)


def test_broken_manifest(tmp_path: Path) -> None:
    bundle = make(tmp_path / "b")
    text = (bundle.path / "bundle.json").read_text()
    (bundle.path / "bundle.json").write_text(text[:-20])
    fails("is damaged: bundle.json is not JSON", "copy the bundle again", read_bundle, bundle.path)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"entry": "other.py:model"}, "bundle.json was changed after it was written"),
        ({"files": {}}, "bundle.json was changed"),
        ({"models": None}, "bundle.json: models must be a list"),
        ({"sha256": "0"}, "bundle.json was changed"),
    ],
)
def test_tampered_manifest(tmp_path: Path, change: dict[str, Any], match: str) -> None:
    file = make(tmp_path / "b").path / "bundle.json"
    file.write_text(to_json(json.loads(file.read_text()) | change))
    fails(f"is damaged: {match}", "copy the bundle again", read_bundle, file.parent)


@pytest.mark.parametrize(
    ("before", "after", "match"),
    [
        ("{", '{"entry": "a", ', "it has the key 'entry' twice"),
        ("{", '{"x": NaN, ', "it has the number NaN"),
        ("{", '{"x": -Infinity, ', "it has the number -Infinity"),
        ("{", f'{{"x": {"[" * 500}{"]" * 500}, ', "it is nested too deeply"),
        ("{", f'{{"x": {"9" * 400}, ', "it has an integer of 400 digits"),
    ],
    ids=["key", "NaN", "infinity", "depth", "digits"],
)
def test_a_manifest_is_strict_json(tmp_path: Path, before: str, after: str, match: str) -> None:
    file = make(tmp_path / "b").path / "bundle.json"
    file.write_text(file.read_text().replace(before, after, 1))
    fails(match, "copy the bundle again", read_bundle, file.parent)


def test_a_sparse_file_is_not_read_into_memory(tmp_path: Path) -> None:
    bundle = make(tmp_path / "b", verification=lambda _: {"verdict": "passed"})
    os.truncate(bundle.path / "verification.json", 1 << 40)
    fails("verification.json has more than 1024 MiB", "verify again", lambda: bundle.verified)
    os.truncate(bundle.path / "bundle.json", 1 << 40)
    fails("bundle.json has more than 1024 MiB", "", read_bundle, bundle.path)


def test_unknown_format(tmp_path: Path) -> None:
    file = make(tmp_path / "b").path / "bundle.json"
    file.write_text(to_json(json.loads(file.read_text()) | {"format": 7, "opbridge": "9.0"}))
    fails(
        "bundle of format 7, written by opbridge 9.0; this opbridge reads format 1", "export", read_bundle, file.parent
    )


@pytest.mark.parametrize("content", ["{}", "[1]"])
def test_somebody_elses_manifest(tmp_path: Path, content: str) -> None:
    (tmp_path / "bundle.json").write_text(content)
    fails("is not the manifest of an opbridge bundle", "opbridge export", read_bundle, tmp_path)


# Writing where something is already, or where nothing can be written.


def test_an_existing_bundle_needs_overwrite(tmp_path: Path) -> None:
    bundle = make(tmp_path / "b", verification=lambda _: {"verdict": "passed"})
    fails("There is already a bundle at", "--overwrite", make, tmp_path / "b")
    make(tmp_path / "b", overwrite=True)
    assert bundle.verified is None
    assert os.listdir(tmp_path) == ["b"]


def test_a_foreign_folder_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    fails("exists and is not a bundle", "new folder", make, tmp_path, overwrite=True)
    (tmp_path / "bundle.json").write_text("{}")
    fails("exists and is not a bundle", "new folder", make, tmp_path, overwrite=True)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_files_of_others_in_a_bundle_are_never_deleted(tmp_path: Path) -> None:
    bundle = make(tmp_path / "b")
    (bundle.path / "notes.txt").write_text("mine")
    fails("holds files that are not the bundle's.*: notes.txt", "move them", make, bundle.path, overwrite=True)
    assert (bundle.path / "notes.txt").exists()


def test_a_file_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("a file")
    fails("b exists and is not a folder", "-o", make, tmp_path / "b", overwrite=True)
    fails("is a file", "below a folder", make, tmp_path / "b" / "c")


def test_an_empty_folder_and_a_link_to_a_bundle_are_used(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    make(tmp_path / "link")
    make(tmp_path / "link", overwrite=True)
    assert (tmp_path / "link").is_symlink()
    assert read_bundle(tmp_path / "real").manifest["files"]


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    fails("no permission to create files in", "write permission", check_destination, tmp_path / "b")
    monkeypatch.setattr("os.statvfs", lambda path: SimpleNamespace(f_flag=os.ST_RDONLY))
    fails("is read-only", "another disk", check_destination, tmp_path / "b")


@pytest.mark.parametrize(
    ("error", "match", "fix"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device"),
            "No space left on device. Nothing was written",
            "disk space",
        ),
        (PermissionError(errno.EACCES, "Permission denied"), "Permission denied", "another folder"),
    ],
)
def test_nothing_half_written_stays(tmp_path: Path, error: OSError, match: str, fix: str) -> None:
    fails(match, fix, make, tmp_path / "b", write=failing(error))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(143), ValueError("no")])
def test_an_interrupted_overwrite_leaves_the_older_bundle(tmp_path: Path, error: BaseException) -> None:
    bundle = make(tmp_path / "b")
    with pytest.raises(type(error)):
        make(bundle.path, write=failing(error), overwrite=True)
    assert read_bundle(bundle.path) == bundle
    assert os.listdir(tmp_path) == ["b"]


def test_a_failed_rename_puts_the_older_bundle_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = make(tmp_path / "b")
    rename, calls = os.rename, []

    def rename_once(source: Path, target: Path) -> None:
        calls.append(source)
        if len(calls) == 2:
            raise OSError(errno.EIO, "Input/output error")
        rename(source, target)

    monkeypatch.setattr(os, "rename", rename_once)
    monkeypatch.setattr(opbridge.atomic, "_exchange", lambda folder, target: False)
    fails("Input/output error", "another folder", make, bundle.path, overwrite=True)
    assert read_bundle(bundle.path) == bundle
    assert os.listdir(tmp_path) == ["b"]


# What a process that was killed leaves behind.

HALF_WRITTEN = """
import os, sys
from pathlib import Path
from types import SimpleNamespace
from opbridge.atomic import temporary_sibling

with temporary_sibling(sys.argv[1], Path(sys.argv[1])) as folder:
    (folder / "model.onnx").write_bytes(b"half a mo")
    print(folder, flush=True)
    sys.stdin.read()
"""


def half_written(target: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process in the middle of writing a folder, and what it has written so far."""
    command = [sys.executable, "-c", HALF_WRITTEN, str(target)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


@pytest.mark.skipif(sys.platform == "win32", reason="there are no locks on folders there")
def test_what_a_killed_process_left_is_deleted_and_what_a_living_one_writes_is_not(tmp_path: Path) -> None:
    killed, left = half_written(tmp_path / "b")
    other, of_another = half_written(tmp_path / "b2")
    for process in (killed, other):
        process.kill()
        process.communicate()
    living, in_work = half_written(tmp_path / "b")
    make(tmp_path / "b")
    assert not left.exists()
    assert in_work.exists()
    assert of_another.exists()
    living.communicate()
    assert sorted(os.listdir(tmp_path)) == sorted([of_another.name, "b"])


def test_what_a_killed_process_left_in_a_bundle_is_no_file_of_others(tmp_path: Path) -> None:
    bundle = make(tmp_path / "b")
    left = opbridge.atomic._temporary_name("verification.json", "0123abcd")
    (bundle.path / left).write_text("{")
    make(bundle.path, overwrite=True)
    assert os.listdir(tmp_path) == ["b"]
    (bundle.path / left).write_text("{")
    write_side_file(bundle, "verification.json", {"verdict": "passed"})
    assert (bundle.path / left).exists() == (sys.platform == "win32")


@pytest.mark.skipif(sys.platform == "win32", reason="there are no locks on folders there")
@pytest.mark.parametrize("verb", [read_bundle, make])
def test_a_bundle_is_put_back_whose_replacement_was_killed(tmp_path: Path, verb: Callable[[Path], Any]) -> None:
    bundle = make(tmp_path / "b")
    # Where two folders can't be exchanged in one step, this is what is left between the two.
    left = opbridge.atomic._temporary_name("b", "0123abcd")
    bundle.path.rename(tmp_path / f"{left}.old")
    (tmp_path / left).mkdir()
    if verb is make:
        fails("There is already a bundle at", "--overwrite", make, tmp_path / "b")
    assert read_bundle(bundle.path) == bundle
    assert os.listdir(tmp_path) == ["b"]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it takes two steps")
def test_a_bundle_is_replaced_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = make(tmp_path / "b")

    def refuse(*_: object) -> None:
        raise AssertionError("renamed in two steps")

    monkeypatch.setattr(os, "rename", refuse)
    make(bundle.path, overwrite=True, verification=lambda _: {"verdict": "passed"})
    assert bundle.verified
    assert os.listdir(tmp_path) == ["b"]


def test_a_side_file_that_can_not_be_written_leaves_the_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = make(tmp_path / "b", verification=lambda _: {"verdict": "passed"})

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    match = "verification.json: No space left on device. The existing file is unchanged"
    fails(match, "free some disk space", write_side_file, bundle, "verification.json", {"verdict": "failed"})
    assert bundle.verified
    assert not [name for name in os.listdir(bundle.path) if name.startswith(".")]


def test_the_failing_outputs_are_those_that_the_verification_does_not_pass() -> None:
    assert {*checks._FAILING, "not compared"} == {*get_args(Status)} - PASSING
    found = [{"status": status, "output": f"y_{status}", "ratio": 2.0} for status in get_args(Status)]
    for comparison in found:
        shown = checks.outcome({"verdict": "failed", "comparisons": [comparison]}, ())
        assert (comparison["output"] in shown) == (comparison["status"] in checks._FAILING)
