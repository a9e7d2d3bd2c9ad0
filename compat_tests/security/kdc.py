"""Kerberos realm for a test: MIT's KDC out of Debian's packages, in a directory and at a port of its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from compat_tests.support.processes import free_port

PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
REQUIRED_PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit", "kcat")
MISSING_PROGRAMS = [x for x in REQUIRED_PROGRAMS if shutil.which(x, path=PATH) is None]
MISSING_PROGRAMS += ["gssapi"] if find_spec("gssapi") is None else []
"""Commands and packages this machine has not."""
SKEW_S = 6
"""Limit of the clock skew of clients, at servers."""


class KerberosRealm:
    """KDC and the keys in its database."""

    name = "OTTLA.TEST"

    def __init__(self, where: Path) -> None:
        self.where, self.port = where, free_port()
        where.mkdir(exist_ok=True)
        self.config = self._config("krb5.conf", "")
        self.server_config = self._config("server.conf", f"  clockskew = {SKEW_S}\n")
        (where / "kdc.conf").write_text(
            f"[kdcdefaults]\n  kdc_listen = 127.0.0.1:{self.port}\n  kdc_tcp_listen = 127.0.0.1:{self.port}\n"
            f"[realms]\n  {self.name} = {{\n    database_name = {where}/principal\n    key_stash_file = {where}/stash\n"
            "  }\n"
        )
        self.environ = {
            **os.environ,
            "PATH": PATH,
            "KRB5_CONFIG": self.config,
            "KRB5_KDC_PROFILE": f"{where}/kdc.conf",
            "KRB5CCNAME": f"FILE:{where}/tickets",
            "KRB5RCACHEDIR": str(where),
        }
        self._kdc: subprocess.Popen[bytes] | None = None

    def _config(self, name: str, more: str) -> str:
        file = self.where / name
        file.write_text(
            f"[libdefaults]\n  default_realm = {self.name}\n  dns_lookup_kdc = false\n  dns_lookup_realm = false\n"
            f"  dns_canonicalize_hostname = false\n  rdns = false\n  udp_preference_limit = 1\n{more}"
            f"[realms]\n  {self.name} = {{\n    kdc = 127.0.0.1:{self.port}\n  }}\n"
            f"[domain_realm]\n  localhost = {self.name}\n"
        )
        return str(file)

    def _run(self, *command: str) -> None:
        done = subprocess.run(command, env=self.environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"

    def add_principals(self, keytab: str, *principals: str) -> str:
        """Add principals with their keys in a file; return its path."""
        path = str(self.where / keytab)
        for principal in principals:
            self._run("kadmin.local", "-q", f"addprinc -randkey {principal}@{self.name}")
        self._run("kadmin.local", "-q", f"ktadd -k {path} " + " ".join(f"{x}@{self.name}" for x in principals))
        return path

    def change_key(self, principal: str) -> None:
        """Change the key of a principal to one that no file has."""
        self._run("kadmin.local", "-q", f"cpw -randkey {principal}@{self.name}")

    def __enter__(self) -> KerberosRealm:
        self._run("kdb5_util", "create", "-s", "-P", "no-secret", "-r", self.name)
        with (self.where / "kdc.log").open("ab") as log:
            self._kdc = subprocess.Popen(["krb5kdc", "-n"], env=self.environ, stdout=log, stderr=log)
        deadline = time.monotonic() + 120
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                assert time.monotonic() < deadline, (self.where / "kdc.log").read_text()
                time.sleep(0.02)

    def __exit__(self, *error: Any) -> None:
        assert self._kdc is not None
        self._kdc.terminate()
        self._kdc.wait(20)
