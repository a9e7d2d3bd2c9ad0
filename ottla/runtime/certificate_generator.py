"""Generation of a certificate authority and a certificate for a node with the ``openssl`` command.

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

from ottla.env.tls import InvalidTlsConfig

VALIDITY_DAYS = 3650
_MISSING = "making certificates needs the openssl command (Debian: apt install openssl)"


def _run(where: str, *arguments: str) -> None:
    command = shutil.which("openssl")
    if command is None:
        raise InvalidTlsConfig(_MISSING)
    done = subprocess.run([command, *arguments], cwd=where, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise InvalidTlsConfig(f"openssl {arguments[0]}: {done.stderr.strip().splitlines()[-1:] or 'failed'}")


def _name(host: str) -> str:
    try:
        return f"IP:{ip_address(host)}"
    except ValueError:
        return f"DNS:{host}"


def generate_certificates(hosts: Iterable[str]) -> tuple[str, str]:
    """Return (private key with certificate for ``hosts``, certificate of a new authority that signed it), as PEM.

    The authority's own key is discarded, so that it signs no other certificate.

    Raises:
        InvalidTlsConfig: the openssl command is missing or fails.
    """
    names = list(dict.fromkeys(_name(host) for host in hosts))
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    with tempfile.TemporaryDirectory() as where:
        os.chmod(where, 0o700)
        Path(where, "ext").write_text(f"subjectAltName={','.join(names)}\nextendedKeyUsage=serverAuth,clientAuth\n")
        authority = [
            "-subj",
            "/CN=Ottla's own authority",
            "-days",
            str(VALIDITY_DAYS),
            "-keyout",
            "ca.key",
            "-out",
            "ca.pem",
        ]
        _run(where, "req", "-x509", *new, *authority)
        _run(where, "req", *new, "-subj", "/CN=ottla", "-keyout", "key.pem", "-out", "request.pem")
        signing = [
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            str(VALIDITY_DAYS),
            "-extfile",
            "ext",
        ]
        _run(where, "x509", "-req", "-in", "request.pem", *signing, "-out", "cert.pem")
        own, made, trusted = (Path(where, x).read_text() for x in ("key.pem", "cert.pem", "ca.pem"))
    return own + made, trusted
