"""``sign``: sign a bundle, so that others can check who made it."""

from __future__ import annotations

import os

from opbridge.bundle.bundle import read_bundle
from opbridge.bundle.checks import (
    MANIFEST,
    MODEL_SIGNATURE,
    SIDE_FILES,
    VERIFICATION,
    VERIFICATION_SIGNATURE,
    check_nothing_else,
)
from opbridge.bundle.signing import make_signature
from opbridge.errors import InputError

__all__ = ["sign"]


def sign(path: str | os.PathLike[str], key: str | os.PathLike[str]) -> tuple[str, ...]:
    """Sign a bundle with an offline key, in the format of OpenSSF's model signing.

    Args:
        path: The bundle.
        key: The private key: an elliptic curve key (P-256, P-384 or P-521), as an unencrypted PEM file.

    Returns:
        The names of the signatures, which are files in the bundle: "model.sig", and "verification.sig" if the bundle
        was verified.

    Raises:
        InputError: The bundle is damaged or holds files that its manifest does not list, its verification is a
            stranger's, the key can't be used, or the package ``model-signing`` is missing.
    """
    bundle = read_bundle(path)
    check_nothing_else(bundle.path, {MANIFEST, *SIDE_FILES, *bundle.manifest["files"]})
    if bundle.claim:
        raise InputError(
            f"{VERIFICATION} of {path} is not yours, and the signature would vouch for it.",
            fix=f"verify the bundle first, or delete {VERIFICATION}.",
        )
    names = [MODEL_SIGNATURE]
    if bundle.verification is not None:
        names.append(VERIFICATION_SIGNATURE)
    for name in names:
        make_signature(bundle.path, name, key)
    return tuple(names)
