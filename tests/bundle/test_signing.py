"""Signatures of bundles: who made one is known, and every kind of tampering is found."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_lines import Ran
from one_node import FLOAT, one_node, save

import opbridge
from opbridge.bundle.bundle import read_bundle
from opbridge.bundle.checks import manifest_hash, to_json
from opbridge.bundle.write import write_bundle, write_side_file
from opbridge.errors import InputError
from opbridge.verbs.sign import sign

pytest.importorskip("model_signing", reason="not run: needs the extra signing")

pytestmark = pytest.mark.newest

SPEC = {"dtype": "float32", "shape": ["n"]}
MANIFEST: dict[str, Any] = {
    "entry": None,
    "models": [{"file": "model.onnx", "engines": ["onnxruntime"], "opset": 20, "ir_version": 10}],
    "inputs": [{"name": "x0", **SPEC}],
    "outputs": [{"name": "y0", **SPEC}],
}
PASSED = {"verdict": "passed", "engine": "onnxruntime", "cases": [], "comparisons": [], "seconds": {}}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with key pairs: mine, theirs, and one of another kind."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    folder = tmp_path_factory.mktemp("keys")
    made = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("mine", "theirs")}
    for name, key in {**made, "other kind": ed25519.Ed25519PrivateKey.generate()}.items():
        pem = serialization.Encoding.PEM
        secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
        (folder / f"{name}.pem").write_bytes(secret)
        (folder / f"{name}.pub").write_bytes(public)
    return folder


@pytest.fixture
def signed(tmp_path: Path, keys: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A signed bundle of another user, at another path than where it was signed."""

    def write(folder: Path) -> None:
        save(one_node("Relu", [(FLOAT, ["n"])], [(FLOAT, ["n"])]), folder / "model.onnx")
        (folder / "kernels").mkdir()
        (folder / "kernels" / "a.h").write_text("a kernel")

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "signer"))
    made = write_bundle(tmp_path / "made", MANIFEST, write, verification=lambda _: PASSED)
    assert sign(made.path, keys / "mine.pem") == ("model.sig", "verification.sig")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "me"))
    return Path(shutil.copytree(made.path, tmp_path / "received"))


def test_a_signature_is_trusted_if_its_key_is_named(signed: Path, keys: Path) -> None:
    assert read_bundle(signed).trust == "none"
    assert read_bundle(signed).verified is None
    bundle = read_bundle(signed, trust=keys / "mine.pub")
    assert bundle.trust == "signed"
    assert bundle.verified is True
    x = np.array([-1, 2], np.float32)
    assert opbridge.load(signed, trust=keys / "mine.pub")(x)[0].tolist() == [0, 2]


def rewritten(bundle: Path) -> None:
    manifest = json.loads((bundle / "bundle.json").read_text())
    manifest["entry"] = "evil.py:model"
    manifest["sha256"] = manifest_hash(manifest)
    (bundle / "bundle.json").write_text(to_json(manifest))


def signed_again(bundle: Path) -> None:
    """The file changed, its hash in the manifest too, and what is not covered left as it is."""
    content = b"another kernel"
    (bundle / "kernels" / "a.h").write_bytes(content)
    import hashlib

    manifest = json.loads((bundle / "bundle.json").read_text())
    manifest["files"]["kernels/a.h"] = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    manifest["sha256"] = manifest_hash(manifest)
    (bundle / "bundle.json").write_text(to_json(manifest))


def with_payload(bundle: Path) -> None:
    """A signature whose text says what the bundle is now."""
    import base64

    rewritten(bundle)
    data = json.loads((bundle / "model.sig").read_text())
    payload = json.loads(base64.b64decode(data["dsseEnvelope"]["payload"]))
    import hashlib

    for resource in payload["predicate"]["resources"]:
        resource["digest"] = hashlib.sha256((bundle / resource["name"]).read_bytes()).hexdigest()
    data["dsseEnvelope"]["payload"] = base64.b64encode(json.dumps(payload).encode()).decode()
    (bundle / "model.sig").write_text(json.dumps(data))


TAMPERING: dict[str, tuple[Callable[[Path], Any], str]] = {
    "model": (lambda b: (b / "model.onnx").write_bytes(b"another"), "model.onnx has 7 bytes"),
    "manifest": (rewritten, "not a signature of these files"),
    "file and manifest": (signed_again, "not a signature of these files"),
    "file added": (lambda b: (b / "numpy.py").write_text(""), "numpy.py in it is not listed"),
    "file missing": (lambda b: (b / "kernels" / "a.h").unlink(), "kernels/a.h is missing"),
    "no signature": (lambda b: (b / "model.sig").unlink(), "has no signature model.sig"),
    "empty signature": (lambda b: (b / "model.sig").write_text(""), "not a signature of these files"),
    "no JSON": (lambda b: (b / "model.sig").write_text("[" * 100_000), "not a signature of these files"),
    "the other signature": (lambda b: shutil.copy(b / "verification.sig", b / "model.sig"), "not a signature of these"),
    "payload": (with_payload, "not a signature of these files"),
}


@pytest.mark.parametrize("name", TAMPERING)
def test_tampering_is_found(signed: Path, keys: Path, name: str) -> None:
    tamper, message = TAMPERING[name]
    tamper(signed)
    with pytest.raises(InputError, match=message):
        read_bundle(signed, trust=keys / "mine.pub")


def test_another_key_is_refused(signed: Path, keys: Path) -> None:
    with pytest.raises(InputError, match="not a signature of these files") as caught:
        read_bundle(signed, trust=keys / "theirs.pub")
    assert "get it, and the key, again" in caught.value.fix


def _hole(file: Path) -> None:
    file.touch()
    os.truncate(file, 1 << 40)


NO_KEYS: dict[str, tuple[Callable[[Path, Path], Any], str]] = {
    "missing": (lambda file, keys: None, "public key: No such file"),
    "a pipe": (lambda file, keys: os.mkfifo(file), "as a public key"),
    "a folder": (lambda file, keys: file.mkdir(), "as a public key"),
    "a terabyte": (lambda file, keys: _hole(file), "as a public key"),
    "junk": (lambda file, keys: file.write_bytes(b"\0key"), "as a public key"),
    "a private key": (lambda file, keys: shutil.copy(keys / "mine.pem", file), "as a public key"),
    "of another kind": (
        lambda file, keys: shutil.copy(keys / "other kind.pub", file),
        "not a key of an elliptic curve",
    ),
}


@pytest.mark.parametrize("name", NO_KEYS)
def test_what_is_no_key_is_named(signed: Path, keys: Path, tmp_path: Path, name: str) -> None:
    make, message = NO_KEYS[name]
    make(tmp_path / "key", keys)
    with pytest.raises(InputError, match=f"{tmp_path}/key .*{message}") as caught:
        read_bundle(signed, trust=tmp_path / "key")
    assert "key pair" in caught.value.fix


def test_a_signature_by_another_key_is_refused(signed: Path, keys: Path) -> None:
    (signed / "verification.json").unlink()
    sign(signed, keys / "theirs.pem")
    with pytest.raises(InputError, match="not a signature of these files"):
        read_bundle(signed, trust=keys / "mine.pub")
    assert read_bundle(signed, trust=keys / "theirs.pub").trust == "signed"


def test_a_verification_that_was_changed_is_a_claim_of_a_signed_bundle(signed: Path, keys: Path) -> None:
    (signed / "verification.json").write_text(json.dumps({**PASSED, "worst": 0}))
    bundle = read_bundle(signed, trust=keys / "mine.pub")
    assert bundle.trust == "signed"
    assert bundle.verified is None
    write_side_file(bundle, "verification.json", {**PASSED, "verdict": "failed"})
    assert read_bundle(signed, trust=keys / "mine.pub").verified is False


def test_a_failing_input_that_was_changed_makes_the_verification_a_claim(signed: Path, keys: Path) -> None:
    (signed / "failing_input.npz").write_bytes(b"another")
    bundle = read_bundle(signed, trust=keys / "mine.pub")
    assert bundle.trust == "signed"
    assert bundle.verified is None


def test_a_private_key_in_a_pipe_is_not_waited_for(signed: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "key")
    (signed / "verification.json").unlink()
    with pytest.raises(InputError, match="key can't be used as a private key"):
        sign(signed, tmp_path / "key")


def test_a_claim_is_not_signed(signed: Path, keys: Path) -> None:
    with pytest.raises(InputError, match=r"verification\.json of .* is not yours"):
        sign(signed, keys / "theirs.pem")


@pytest.mark.slow
def test_the_tool_of_openssf_checks_the_signature_too(signed: Path, keys: Path) -> None:
    program = f"import sys; sys.path += {sys.path!r}; from model_signing._cli import main; main()"
    command = [sys.executable, "-c", program, "verify", "key", str(signed), "--signature", str(signed / "model.sig")]
    command += ["--public_key", str(keys / "mine.pub")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (signed / "kernels" / "a.h").write_text("another")
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0


def test_the_command_line(signed: Path, keys: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "x.npz", x0=np.array([-1, 2], np.float32))
    run = ["run", signed, "--input", tmp_path / "x.npz", "-o", tmp_path / "y.npz"]
    assert Ran(capfd, *run, "--signed-by", keys / "mine.pub").code == 0
    ran = Ran(capfd, *run, "--signed-by", keys / "theirs.pub")
    assert ran.code == 1
    assert "model.sig of" in ran.err
    (signed / "verification.json").unlink()
    ran = Ran(capfd, "sign", signed, "--key", keys / "theirs.pem")
    assert ran.code == 0
    assert "signed" in ran.out
    assert "make a key pair: openssl" in Ran(capfd, "sign", signed, "--key", tmp_path / "none.pem").err
