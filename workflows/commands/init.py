"""`quarkline init`: a commented parameter file to start from."""

from __future__ import annotations

import shlex
from glob import has_magic
from pathlib import Path
from typing import Annotated

import typer

from stages.base.errors import InputError
from workflows.commands.options import JsonOption
from workflows.documents import Document
from workflows.starters import cluster_files, starter, starter_names

DOCUMENT = Document("init", {"file": Path}, about="The parameter file that was written.")


def init(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help=f"A workflow: {', '.join(starter_names())}; or a cluster: {', '.join(cluster_files())}.",
            autocompletion=lambda: [*starter_names(), *cluster_files()],
        ),
    ],
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The file to write.", show_default="NAME.yaml")
    ] = None,
    files: Annotated[
        list[str] | None,
        typer.Option(
            "--files",
            metavar="PATTERN",
            help="Your gauge configurations, a quoted shell pattern; may be given several times.",
            show_default="a small quenched ensemble that the run generates",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write a commented workflow or cluster file to start from; an existing file is never replaced.

    With --files it reads the headers of your configurations. Numbers that do not fit the lattice, such as
    source times, are changed, and files with the same name in several folders get labels by folder.

    Example: quarkline init g2_disconnected my.yaml --files 'confs/*.ildg'

    Example: quarkline init slurm_gpu site.yaml
    """
    cluster = cluster_files().get(name)
    path = file or Path(cluster.name if cluster else f"{name}.yaml")
    text, fitted = starter(name, path, files or ())
    try:
        content = text.encode()
        with path.open("xb") as target:
            target.write(content)
    except FileExistsError:
        remedy = "give another name, or remove it first"
        if files and not has_magic(files[-1]):  # the shell may have made several arguments of a pattern
            remedy = f"put a pattern of --files into quotes, and give a name for the new file after {name}"
        raise InputError(f"{path} exists: {remedy}") from None
    except OSError as error:
        remedy = "" if path.parent.is_dir() else f": make the folder {path.parent} first"
        raise InputError(f"cannot write {path}: {error.strerror or error}{remedy}") from None
    about = f" ({fitted})" if fitted else ""
    typed = shlex.quote(str(path))
    text = f"{path} written{about}. Preview: quarkline plan {typed}. Run: quarkline run {typed}"
    if cluster:
        use = (
            f"bash {typed} WORKFLOW" if path.suffix == ".sh" else f"quarkline run WORKFLOW --cluster {typed}"
        )
        text = f"{path} written: look through it. To use it: {use}"
    DOCUMENT.show({"file": path}, text=text, as_json=json)
