"""Certificates of a cluster, made for it alone, in files that none but their owner reads."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from distributed.security import Security

ROLES = ("scheduler", "worker", "client")


def write_certificates(security: Security, folder: Path, role: str = "worker") -> dict[str, str]:
    """Write a role's certificates into files of mode 600; returns paths of `ca_file`, `cert` and `key`."""
    files = {}
    for key, text in security.get_tls_config_for_role(role).items():
        if key == "ciphers" or not text:
            continue
        path = folder.absolute() / f"{role}-{key}.pem"
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        files[key] = str(path)
    return files


def variables(folder: Path) -> dict[str, str]:
    """Environment of schedulers, workers and clients, with certificates that are written into a folder."""
    security, prefix = Security.temporary(), "DASK_DISTRIBUTED__COMM__"
    named = {f"{prefix}REQUIRE_ENCRYPTION": "True"}
    for role in ROLES:
        files = write_certificates(security, folder, role)
        named[f"{prefix}TLS__CA_FILE"] = files["ca_file"]
        for key in ("cert", "key"):
            named[f"{prefix}TLS__{role.upper()}__{key.upper()}"] = files[key]
    return named


if __name__ == "__main__":
    for name, value in variables(Path(sys.argv[1])).items():
        print(f"export {name}={shlex.quote(value)}")
