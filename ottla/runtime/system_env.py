"""Common base of `RealEnv` and `BlockingEnv`: disk, wall clock, randomness, resource usage and Kerberos."""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING

from ottla.env.disk import Disk
from ottla.env.env import ProcessStats
from ottla.runtime.real_disk import RealDisk

if TYPE_CHECKING:
    from ottla.env.kerberos import GssAcceptorCredentials, GssInitiator, KerberosIdentity, Keytab


def monotonic_s() -> float:
    """Return the time of a monotonic clock in seconds."""
    return time.monotonic()


def sleep_blocking(seconds: float) -> None:
    """Block the calling thread for ``seconds``; for processes without an event loop."""
    time.sleep(seconds)


class SystemEnv:
    """Methods of `Env` on a real machine that do not depend on an event loop."""

    def __init__(self) -> None:
        self.disk: Disk = RealDisk()

    def now_ms(self) -> int:
        """Return the wall clock time in milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def uuid(self) -> bytes:
        """Return a random UUID of version 4 (16 bytes), as Kafka's ``Uuid.randomUuid``.

        Its base64 text does not start with ``-``, which command line tools would parse as an option.
        """
        while True:
            raw = bytearray(os.urandom(16))
            raw[6] = raw[6] & 0x0F | 0x40
            raw[8] = raw[8] & 0x3F | 0x80
            if raw[0] >> 2 != 62:
                return bytes(raw)

    def random(self) -> float:
        """Return a random number in [0, 1), for placement and jitter; not for secrets."""
        return random.random()

    def process_stats(self) -> ProcessStats:
        """Return the current resource usage of the process, from ``/proc``."""
        # lazy: 0.5 ms, 10 kB: only with a metrics page
        from ottla.runtime.process_stats import read_process_stats

        return read_process_stats()

    def kerberos_acceptor(self, keytab: Keytab) -> GssAcceptorCredentials:
        """Return credentials to accept Kerberos tickets with the keys in a keytab.

        Raises:
            InvalidKeytab: the library, the keytab file or the principal's key in it is missing.
        """
        # lazy: 1.4 ms, 64 kB: only with GSSAPI
        from ottla.runtime.real_kerberos import RealGssAcceptorCredentials

        return RealGssAcceptorCredentials(keytab)

    def kerberos_initiator(self, identity: KerberosIdentity, service: str) -> GssInitiator:
        """Return the client side of a GSS-API context with ``service`` (``kafka@host``); blocks.

        Raises:
            InvalidKeytab: the library, the key or the ticket is missing.
        """
        # lazy: 1.4 ms, 64 kB
        from ottla.runtime.real_kerberos import RealGssInitiator

        return RealGssInitiator(identity, service)
