"""Test certificates, created with the openssl command."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ottla.env.tls import TlsStore


class CertificateAuthority:
    """Certificate authority for a test, using the openssl command."""

    def __init__(self, where: Path) -> None:
        self._where = where
        where.mkdir(exist_ok=True)
        self._run("req", "-x509", *self._new("ca"), "-subj", "/CN=Authority", "-days", "2")
        self.truststore = TlsStore(f"{where}/ca.pem")

    def _run(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=self._where)

    def _new(self, name: str) -> list[str]:
        return [
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-keyout",
            f"{name}.key",
            "-out",
            f"{name}.pem",
        ]

    def issue(
        self, name: str, subject: str, alt: str = "DNS:localhost,IP:127.0.0.1", days: str = "2", mask: str = ""
    ) -> TlsStore:
        """Return a file with a key and its certificate; ``mask``: string_mask of openssl."""
        with_mask: list[str] = []
        if mask:
            own = "oid_section=own\n[own]\nours=1.3.6.1.4.1.99999.123456789\n"
            text = f"{own}[req]\nstring_mask={mask}\ndistinguished_name=none\n[none]\n"
            (self._where / "mask").write_text(text)
            with_mask = ["-config", "mask", "-utf8"]
        self._run("req", *self._new(name), "-subj", subject, *with_mask)
        (self._where / "ext").write_bytes(f"subjectAltName={alt}\n".encode("latin-1"))
        signing = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", days, "-extfile", "ext"]
        self._run("x509", "-req", "-in", f"{name}.pem", "-out", f"{name}.crt", *signing)
        both = self._where / f"{name}.both"
        both.write_bytes((self._where / f"{name}.key").read_bytes() + (self._where / f"{name}.crt").read_bytes())
        return TlsStore(str(both))
