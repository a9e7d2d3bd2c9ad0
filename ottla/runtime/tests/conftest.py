"""Certificates, created once per module."""

from __future__ import annotations

import pytest

from ottla.env.tls import TlsStore
from ottla.runtime.tests.certificate_authority import CertificateAuthority


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def keys(authority: CertificateAuthority) -> TlsStore:
    return authority.issue("server", "/CN=localhost")
