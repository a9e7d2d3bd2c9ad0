"""Free ports for the nodes of a cluster on this machine."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence

from ottla.runtime.system_env import SystemEnv

CLIENT_PORTS, CONTROLLER_PORTS = range(15_000, 23_000), range(23_000, 31_000)
"""Ranges of free ports, below the system's ephemeral ports, since a node binds its port only later. They are
separate, since a controller's port is stored in its directory, while a restarted cluster draws new client ports.
"""


def free_ports(host: str, count: int, among: Sequence[int]) -> list[int]:
    """Return ``count`` different ports of ``among`` without a listener.

    Raises:
        OSError: the address does not belong to this machine, or all ports but fewer than ``count`` have a listener.
    """
    found: list[int] = []
    first = int(SystemEnv().random() * len(among))
    for port in (*among[first:], *among[:first]):
        if len(found) == count:
            break
        with socket.socket() as sock:
            try:
                sock.bind((host, port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                found.append(port)
    if len(found) < count:
        raise OSError(
            errno.EADDRINUSE,
            f"{len(found)} of the ports {min(among)} to {max(among)} of {host} are free ({count} needed)",
        )
    return found
