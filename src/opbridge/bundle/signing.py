"""Signatures of bundles: OpenSSF's model signing with an offline key pair, by the package ``model-signing``.

``model.sig`` covers the manifest and the files that it lists, ``verification.sig`` the verification and its failing
input too. Both are Sigstore bundles, which ``model_signing verify key`` of that package checks as well. The other side
files (the report, the marks, the source locations) are not covered, and the signatures say so.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from opbridge.atomic import TemporaryFolder, replace_file, reported
from opbridge.bundle.checks import (
    FAILING_INPUT,
    MANIFEST,
    MODEL_SIGNATURE,
    SIDE_FILES,
    VERIFICATION,
    VERIFICATION_SIGNATURE,
)
from opbridge.errors import InputError, described_error
from opbridge.user_key import read_regular

__all__ = ["check_signature", "make_signature"]

_COVERED = {MODEL_SIGNATURE: (), VERIFICATION_SIGNATURE: (VERIFICATION, FAILING_INPUT)}
"""The side files that each signature covers, in addition to the manifest and the files that it lists."""


def make_signature(folder: Path, name: str, key: str | os.PathLike[str]) -> None:
    """Write one signature of a bundle.

    Args:
        folder: The bundle.
        name: The signature, "model.sig" or "verification.sig".
        key: The private key, an unencrypted PEM file of an elliptic curve key.

    Raises:
        InputError: The key can't be used, or the signature can't be written.
    """
    with TemporaryFolder() as scratch, reported(folder / name):
        draft = Path(scratch) / name
        with _explained(f"{folder} can't be signed with {key}", f"make a key pair: {_MAKE_KEYS}"):
            _check_key(key)
            config = _modules().signing.Config().use_elliptic_key_signer(private_key=Path(key))
            config.set_hashing_config(_hashing(name)).sign(folder, draft)
        replace_file(folder / name, draft.read_bytes())


def check_signature(folder: Path, name: str, key: str | os.PathLike[str]) -> None:
    """Check one signature of a bundle whose files were checked against its manifest.

    Args:
        folder: The bundle.
        name: The signature, "model.sig" or "verification.sig".
        key: The public key, a PEM file.

    Raises:
        InputError: There is no signature, or it is not one of this bundle by this key.
    """
    try:
        content = read_regular(folder / name)
    except OSError as error:
        raise InputError(
            f"{folder} has no signature {name}.",
            fix="ask whoever made it to sign it: opbridge sign BUNDLE --key PRIVATE.pem",
        ) from error
    what = f"{name} of {folder} is not a signature of these files by {key}"
    fix = "do not use the bundle: get it, and the key, again from whoever signed it."
    with TemporaryFolder() as scratch, _explained(what, fix):
        copy = Path(scratch) / name
        copy.write_bytes(content)
        _check_key(key)
        config = _modules().verifying.Config().use_elliptic_key_verifier(public_key=Path(key))
        config.set_hashing_config(_hashing(name)).verify(folder, copy)
        missing = {MANIFEST, *_COVERED[name]} - {FAILING_INPUT} - _names(content)
        if missing:
            raise ValueError(f"it does not cover {', '.join(sorted(missing))}")


def _check_key(key: str | os.PathLike[str]) -> None:
    """Raise OSError for what is not a regular file, which would be waited for."""
    if not Path(key).is_file():
        raise OSError(f"{key} is no file")


def _names(signature: bytes) -> set[str]:
    """The names of the files that a signature covers."""
    payload = json.loads(base64.b64decode(json.loads(signature)["dsseEnvelope"]["payload"]))
    return {resource["name"] for resource in payload["predicate"]["resources"]}


def _hashing(name: str) -> Any:
    ignored = [Path(file) for file in SIDE_FILES if file not in _COVERED[name]]
    return _modules().hashing.Config().set_ignored_paths(paths=ignored, ignore_git_paths=False)


_MAKE_KEYS = (
    "openssl ecparam -name prime256v1 -genkey -noout -out PRIVATE.pem && "
    "openssl ec -in PRIVATE.pem -pubout -out PUBLIC.pem"
)


def _modules() -> Any:
    try:
        import model_signing
    except ImportError as error:
        raise InputError(
            "Signatures need the Python package model-signing, which is not installed here.",
            fix='pip install "model-signing>=1.1.1" "pyopenssl>=26.4.0"',
        ) from error
    return model_signing


@contextlib.contextmanager
def _explained(what: str, fix: str) -> Iterator[None]:
    """Turn every exception of the libraries inside into an InputError: a signature fits, or it does not."""
    try:
        # The package prints a warning about old formats.
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{what}: {described_error(error)}", fix=fix) from error
