"""Making a certificate: all checks of a machine, its identity, and where the certificate is kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from types import ModuleType

from pipeline import Store
from pipeline.declare.duration import duration_text
from pipeline.store.durable import write_atomically
from pipeline.store.provenance import code
from pipeline.worker.certificate import (
    Subject,
    certificate_id,
    certificates_folder,
    read_certificates,
    subject,
)
from stages.base.errors import InputError
from stages.base.gpus import imported_cupy
from stages.lqcd.kernels.copy_bandwidth import keep_copy_bandwidth
from stages.lqcd.kernels.dispatch import array_module_of
from workflows.benchmarks.machine import machine_of
from workflows.certification.check import Check, Device, Status, caught
from workflows.certification.free_field import free_field
from workflows.certification.noise_bits import noise_bits
from workflows.certification.references import references
from workflows.certification.symmetries import symmetries
from workflows.certification.twins import Twins
from workflows.certification.ward import ward_identities
from workflows.certification.workload import workload

FORMAT = 1
FOLDER = ".certificates"
"""Folder of a store's copies."""

KINDS: dict[str, Callable[[Device], Iterator[Check]]] = {
    "noise": noise_bits,
    "reference data": references,
    "free field": free_field,
    "symmetries": symmetries,
    "Ward identities": ward_identities,
    "work": workload,
}
"""What is checked, in order, on a device; kernels of all of it, too."""


@dataclass(frozen=True)
class Certification:
    """All checks of a machine, and the certificate where none failed."""

    subject: Subject
    full: bool
    date: str
    checks: tuple[Check, ...]
    seconds: float
    certified: bool
    """Whether no check failed."""
    id: str | None = None
    """The certificate's, null where a check failed."""
    file: Path | None = None
    withdrawn: tuple[str, ...] = ()
    """Earlier certificates of the same machine, device and code that are taken back."""


def certify(
    backend: str,
    *,
    data: Path | None = None,
    store: Store | None = None,
    full: bool = False,
    announce: Callable[[Check], None] = lambda check: None,
) -> Certification:
    """Make all checks; if none fails, write a certificate to the user's cache and to `store`.

    If one fails, certificates that this machine, device and code had are withdrawn.

    Raises:
        InputError: no GPU, `data` without reference data, or a folder that cannot be written.
    """
    device = Device(backend, _array_module(backend), full, data)
    began, checks = perf_counter(), []
    for check in all_checks(device):
        announce(check)
        checks.append(check)
    keep_copy_bandwidth(backend, machine_of(backend).copy_bandwidth())
    date, seconds = datetime.now(UTC).isoformat(timespec="seconds"), perf_counter() - began
    certified = all(check.status is not Status.FAILED for check in checks)
    made = Certification(subject(backend), full, date, tuple(checks), seconds, certified)
    if not certified:
        return replace(made, withdrawn=tuple(_withdraw(made.subject)))
    content = {
        "format": FORMAT,
        "subject": asdict(made.subject),
        "versions": code(),
        "full": full,
        "date": date,
        "checks": [asdict(check) for check in checks],
    }
    identity = certificate_id(content)
    written = {"id": identity, **content}
    file = _write(certificates_folder(), identity, written)
    if store:
        store.create()
        _write(store.inside(FOLDER), identity, written)
    return replace(made, id=identity, file=file)


def all_checks(device: Device) -> Iterator[Check]:
    """Every kind of check in turn; one whose code raises has failed, and the others go on."""
    twins = Twins(device)
    for name, kind in KINDS.items():
        errors: list[Check] = []
        with twins.at_work(), caught(name, "all checks of this kind", errors):
            yield from kind(device)
        yield from errors
    yield from twins.checks()


def certification_text(made: Certification) -> str:
    """Lines for people: how many checks, what was skipped, what failed, and the certificate."""
    by_status = {status: [each for each in made.checks if each.status is status] for status in Status}
    reasons: dict[str, list[str]] = {}
    for each in by_status[Status.SKIPPED]:
        reasons.setdefault(each.reason, []).append(each.name)
    lines = [f"skipped  {', '.join(names)}: {reason}" for reason, names in reasons.items()]
    lines += [f"FAILED   {failure_text(each)}" for each in by_status[Status.FAILED]]
    counts = ", ".join(f"{len(checks)} {status}" for status, checks in by_status.items())
    took = duration_text(made.seconds)
    where = f"{made.subject.device}, {made.subject.backend}, on {made.subject.host}"
    lines.append(f"{counts} in {took}: {where}")
    if made.certified:
        lines.append(f"certificate {made.id}: {made.file}")
    else:
        lines.append("not certified: do not trust results of this machine, device and code")
        lines += [f"certificate {identity} is withdrawn" for identity in made.withdrawn]
    return "\n".join(lines)


def failure_text(check: Check) -> str:
    """Line on a check that failed."""
    if check.deviation is None:
        return f"{check.name}: {check.reason}"
    return f"{check.name}: deviation {check.deviation:.2g}, limit {check.limit:.2g} ({check.compares})"


def _array_module(backend: str) -> ModuleType:
    if backend == "cuda" and not imported_cupy().is_available():
        raise InputError(
            "--backend cuda needs a GPU, and there is none here; --backend cpu certifies the processor"
        )
    return array_module_of(backend)


def _write(folder: Path, identity: str, content: dict[str, object]) -> Path:
    """A certificate in a folder, whole or not at all."""
    path = folder / f"{identity}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, f"{json.dumps(content, indent=1)}\n")
    except OSError as error:
        raise InputError(f"cannot write the certificate {path}: {error.strerror or error}") from error
    return path


def _withdraw(ours: Subject) -> Iterator[str]:
    """Take back the certificates of this subject; their text stays, under another name."""
    folder = certificates_folder()
    for certificate in read_certificates(folder):
        if certificate.get("subject") == asdict(ours):
            path = folder / f"{certificate['id']}.json"
            path.replace(path.with_suffix(".withdrawn"))
            yield certificate["id"]
