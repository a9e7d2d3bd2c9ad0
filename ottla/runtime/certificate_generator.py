"""Generation of a certificate authority and certificates of nodes with the ``openssl`` command.

Keys are of the curve P-256: generated in milliseconds, and supported by every client.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from ottla.env.tls import InvalidTlsConfig

VALIDITY_DAYS = 3650
_MISSING = "making certificates needs the openssl command (Debian: apt install openssl)"


def _run(where: str, *arguments: str) -> None:
    command = shutil.which("openssl")
    if command is None:
        raise InvalidTlsConfig(_MISSING)
    done = subprocess.run([command, *arguments], cwd=where, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise InvalidTlsConfig(f"openssl {arguments[0]}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")


def _name(host: str) -> str:
    try:
        return f"IP:{ip_address(host)}"
    except ValueError:
        return f"DNS:{host}"


class GeneratedAuthority(NamedTuple):
    """Certificate authority of the nodes of a cluster, as PEM."""

    key: str
    """Private key; it signs the certificates of nodes that join later."""
    certificate: str

    def __repr__(self) -> str:
        return "GeneratedAuthority()"


_NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
_VALIDITY = ["-days", str(VALIDITY_DAYS)]


def generate_authority() -> GeneratedAuthority:
    """Generate and return a certificate authority, valid for `VALIDITY_DAYS`; its files are removed again.

    Raises:
        InvalidTlsConfig: the openssl command is missing or fails.
    """
    with tempfile.TemporaryDirectory() as where:
        os.chmod(where, 0o700)
        subject = ["-subj", "/CN=Ottla's own authority", *_VALIDITY]
        _run(where, "req", "-x509", *_NEW_KEY, *subject, "-keyout", "ca.key", "-out", "ca.pem")
        return GeneratedAuthority(*(Path(where, name).read_text() for name in ("ca.key", "ca.pem")))


def generate_certificate(authority: GeneratedAuthority, hosts: Iterable[str]) -> str:
    """Generate a private key and a certificate for ``hosts`` (names and IP addresses), which the authority signs.

    The result is both as PEM, valid for servers and clients for `VALIDITY_DAYS`; no file remains.

    Raises:
        InvalidTlsConfig: the openssl command is missing or fails.
    """
    names = list(dict.fromkeys(_name(host) for host in hosts))
    with tempfile.TemporaryDirectory() as where:
        os.chmod(where, 0o700)
        Path(where, "ext").write_text(f"subjectAltName={','.join(names)}\nextendedKeyUsage=serverAuth,clientAuth\n")
        Path(where, "ca.key").write_text(authority.key)
        Path(where, "ca.pem").write_text(authority.certificate)
        _run(where, "req", *_NEW_KEY, "-subj", "/CN=ottla", "-keyout", "key.pem", "-out", "request.pem")
        signing = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", *_VALIDITY, "-extfile", "ext"]
        _run(where, "x509", "-req", "-in", "request.pem", *signing, "-out", "cert.pem")
        return Path(where, "key.pem").read_text() + Path(where, "cert.pem").read_text()
