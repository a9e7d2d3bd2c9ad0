"""Subjects of certificates: format, and certificates that the ssl module cannot parse."""

from __future__ import annotations

import shutil
import ssl
from typing import Any

import pytest
import trio

from ottla.env.tls import TlsConfig, TlsStore
from ottla.runtime.certificate_subjects import format_subject, parse_subject, peer_subject
from ottla.runtime.tests.test_tls_stream import CertificateAuthority, over_tls, pair
from ottla.runtime.tls_stream import TlsStream

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificates with openssl")
LATIN_1 = "email:m\xfcller@example.org"
ODD = "/C=US/O=\xdcbung, 1/ours=x/serialNumber=7/CN=m\xfcller+UID=\u6f22/emailAddress=a@b"


@pytest.mark.behaviour("S-309")
def test_format_subject_equals_rfc_2253():
    subject = ((("countryName", "US"),), (("organizationName", "A, B"),), (("commonName", "#x"), ("userId", "7")))
    assert format_subject({"subject": subject}) == "CN=\\#x+UID=7,O=A\\, B,C=US"
    assert format_subject({"subject": ((("emailAddress", "a@b"),),)}) == "1.2.840.113549.1.9.1=#1603614062"
    assert format_subject(None) is None


@pytest.mark.behaviour("S-309")
@needs_openssl
def test_client_certificate_with_invalid_alternative_name_authenticates_by_subject(
    authority: CertificateAuthority, keys: TlsStore
) -> None:
    """The ssl module cannot parse such a certificate, and its error ended the node."""
    own = authority.issue("latin", "/O=Here/CN=mueller", alt=LATIN_1)
    server = TlsConfig(keystore=keys, truststore=authority.truststore, client_auth="required")
    ours, theirs, shown = trio.run(pair, server, TlsConfig(keystore=own, truststore=authority.truststore))
    ours._sock.close()
    theirs._sock.close()
    assert shown == "CN=mueller,O=Here"


@needs_openssl
def test_client_connects_to_server_with_invalid_alternative_name(authority: CertificateAuthority) -> None:
    own = authority.issue("latin", "/CN=localhost", alt=f"DNS:localhost,{LATIN_1}")
    ours, theirs, _ = trio.run(pair, TlsConfig(keystore=own), TlsConfig(truststore=authority.truststore))
    ours._sock.close()
    theirs._sock.close()


@needs_openssl
@pytest.mark.parametrize("encoding", ["utf8only", "default", "MASK:0x802"])
def test_parse_subject_equals_ssl_module(authority: CertificateAuthority, keys: TlsStore, encoding: str) -> None:
    own = authority.issue("odd", ODD, mask=encoding)

    async def main(ours: TlsStream, theirs: Any) -> None:
        shown: Any = ours._tls.getpeercert()
        der = ours._tls.getpeercert(binary_form=True)
        assert der is not None
        assert tuple(tuple(part) for part in parse_subject(der)) == shown["subject"]
        assert (("1.3.6.1.4.1.99999.123456789", "x"),) in shown["subject"], "unknown OID keeps its number"
        assert len(shown["subject"]) == 6

    server = TlsConfig(keystore=keys, truststore=authority.truststore, client_auth="required")
    over_tls(main, server, TlsConfig(keystore=own, truststore=authority.truststore))


class CertificateSocket:
    """Socket of a peer with a certificate that the ssl module cannot parse."""

    def __init__(self, der: bytes) -> None:
        self._der = der

    def getpeercert(self, binary_form: bool = False) -> bytes:
        if not binary_form:
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "")
        return self._der


ENDS = [
    "",
    "ff",
    "ff00",
    "ff80",
    "30ff",
    "3080ff0000",
    "1f00ff",
    "300230ff",
    "300430023000ff",
    "300f300d020002000200020030033101ff",
]


@pytest.mark.parametrize("raw", ENDS)
def test_peer_subject_malformed_certificate_raises_ssl_error(raw: str) -> None:
    with pytest.raises(ssl.SSLError, match="cannot be read"):
        peer_subject(CertificateSocket(bytes.fromhex(raw)))
