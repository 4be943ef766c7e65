"""The certificate that results name: of this machine, device and code, made by `quarkline certify`.

Certificates lie in the user's cache, ``certificates/<id>.json``; the id is the SHA-256 of the canonical JSON
of all else in the file, so that what was edited is none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pipeline.store.provenance import host, processor
from pipeline.store.record import Facts, canonical_json
from pipeline.worker.sources import QUARKLINE, digest_of
from stages.base.user_cache import cache_folder

PACKAGES = ("numpy", "numba", "llvmlite", "scipy")
"""Packages that results depend on, beside CuPy on a GPU."""

CUPY = ("cupy-cuda13x", "cupy-cuda12x")


@dataclass(frozen=True)
class Subject:
    """All that a certificate is of; a result made by anything else has none."""

    host: str
    backend: str
    device: str
    driver: str
    """Versions of CUDA's driver and runtime; empty on a CPU."""
    packages: dict[str, str]
    code: str
    """Digest of quarkline's sources that compute."""


@cache
def subject(backend: str) -> Subject:
    """This process's machine, device and code."""
    names = (*PACKAGES, *(CUPY if backend == "cuda" else ()))
    packages = {name: found for name in names if (found := _version(name))}
    return Subject(host(), backend, *_device(backend), packages, digest_of(QUARKLINE))


def _device(backend: str) -> tuple[str, str]:
    if backend != "cuda":
        return processor(), ""
    import cupy

    runtime = cupy.cuda.runtime
    name = runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode()
    return name, f"{runtime.driverGetVersion()}, {runtime.runtimeGetVersion()}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def certificates_folder() -> Path:
    """Folder of the certificates made by this user."""
    return cache_folder() / "certificates"


def certificate_id(content: Facts) -> str:
    """Digest of a certificate's content."""
    return sha256(canonical_json({k: v for k, v in content.items() if k != "id"})).hexdigest()


def read_certificates(folder: Path) -> Iterator[Facts]:
    """All certificates of a folder that are what their id says, newest first."""
    found = []
    for path in folder.glob("*.json") if folder.is_dir() else ():
        try:
            content = json.loads(path.read_text())
            if content["id"] == path.stem == certificate_id(content):
                found.append(content)
        except (OSError, ValueError, KeyError, TypeError):
            continue
    yield from sorted(found, key=lambda content: content.get("date", ""), reverse=True)


def certification(backend: str) -> dict[str, Any]:
    """Part of a chunk's record: `certificate`, its id or None, and then `uncertified`, why there is none."""
    folder = certificates_folder()
    try:
        changed = folder.stat().st_mtime_ns
    except OSError:
        changed = 0
    try:
        identity, why = _found(backend, folder, changed)
    except Exception as error:  # no chunk fails for want of one
        identity, why = None, f"certificates cannot be read ({type(error).__name__}: {error})"
    return {"certificate": identity, **({} if identity else {"uncertified": why})}


@cache
def _found(backend: str, folder: Path, changed: int) -> tuple[str | None, str]:
    """The newest certificate of this subject, or why there is none; read again when the folder changed."""
    ours, closest = asdict(subject(backend)), "no certificate of this machine and device"
    for certificate in read_certificates(folder):
        theirs = certificate.get("subject", {})
        other = [name for name in ours if theirs.get(name) != ours[name]]
        if not other:
            return certificate["id"], ""
        if not {"host", "backend", "device"} & set(other):
            closest = f"certificate {certificate['id'][:12]} is of other {' and '.join(other)}"
    return None, f"{closest}: quarkline certify --backend {backend} makes one"
