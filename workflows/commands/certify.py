"""`quarkline certify`: does this machine compute what it should?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from pipeline import Store
from workflows.certification.certificate import Certification, certification_text
from workflows.certification.certificate import certify as check_all
from workflows.certification.references import reference_folder
from workflows.commands.options import JsonOption
from workflows.documents import Document

DOCUMENT = Document("certify", Certification)


def certify(
    backend: Annotated[Literal["cpu", "cuda"], typer.Option(help="What computes.")] = "cpu",
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="External reference data, with an expected.json.",
            show_default="$QUARKLINE_REFERENCE_DATA",
        ),
    ] = None,
    store: Annotated[
        Path | None, typer.Option(metavar="STORE", help="A store that gets a copy of the certificate.")
    ] = None,
    full: Annotated[
        bool,
        typer.Option("--full", help="Check more block widths and all shipped workflows; takes minutes."),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Check that this machine and device compute correctly, and write a certificate.

    It checks external reference outputs, if their data are present; the free field against closed forms;
    gamma5- and epsilon-hermiticity, gauge covariance, Ward identities of conserved currents; noise against
    published and pinned bits; each kernel against its oracle, and a GPU's against the processor's, in the
    calls that runs make.

    A certificate names machine, device, driver, packages and quarkline's code, and has all measured numbers.
    It is stored in `certificates` of $QUARKLINE_CACHE, otherwise of `quarkline` in $XDG_CACHE_HOME or
    ~/.cache. Later results of the same machine, device and code name it. If a check fails, there is no
    certificate, and the exit code is 1.

    Example: quarkline certify

    Example: quarkline certify --backend cuda --full --store g2-store
    """
    folder, target = reference_folder(data), Store(store) if store else None
    with Console(stderr=True, quiet=json).status("checking") as shown:
        made = check_all(
            backend,
            data=folder,
            store=target,
            full=full,
            announce=lambda check: shown.update(f"checking; {check.name}: {check.status}"),
        )
    DOCUMENT.show(made, text=certification_text(made), as_json=json)
    raise typer.Exit(0 if made.certified else 1)
