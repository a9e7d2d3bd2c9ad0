"""Network namespaces on one bridge, between which packets can be dropped in one direction or both.

A packet for a neighbour with a wrong hardware address is sent and never delivered, without an error. A cut is therefore
a wrong entry in the neighbour table of the sender; no firewall is needed.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from types import TracebackType

CLIENTS = 0
"""Member number of the machine itself, which runs the clients; the namespaces are 1, 2, ..."""
UNREACHABLE_MAC = "02:00:00:00:00:ff"
DEVICE = "eth0"


def unavailable_reason() -> str:
    """Return the reason why namespaces are unavailable; empty if they are available."""
    if os.geteuid() != 0:
        return "namespaces need root"
    name = f"ottla-try-{os.getpid()}"  # other test processes may try at the same time
    try:
        done = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "there is no ip command"
    if done.returncode == 0:
        subprocess.run(["ip", "netns", "del", name], check=True)
    return done.stderr.strip()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class NamespaceNetwork:
    """A number of namespaces and the machine itself on one bridge."""

    def __init__(self, count: int) -> None:
        self._mark = os.getpid() % 10_000
        self._bridge = f"ob{self._mark}"
        self.members = range(count + 1)

    def host(self, member: int) -> str:
        """Return the address of a member."""
        return f"10.{77 + self._mark % 100}.{self._mark % 250}.{member + 1}"

    def command(self, member: int) -> list[str]:
        """Return the prefix of a command that runs in the namespace."""
        return [] if member == CLIENTS else ["ip", "netns", "exec", self._name(member)]

    def _name(self, member: int) -> str:
        return f"on{self._mark}-{member}"

    def _outside(self, member: int) -> str:
        """Return the name of the device's other end, on the bridge."""
        return f"ov{self._mark}-{member}"

    def _hardware(self, member: int) -> str:
        return f"02:00:00:00:00:{member + 1:02x}"

    def _in(self, member: int, *words: str) -> None:
        _ip(*(() if member == CLIENTS else ("-n", self._name(member))), *words)

    def _device(self, member: int) -> str:
        return self._bridge if member == CLIENTS else DEVICE

    def __enter__(self) -> NamespaceNetwork:
        try:
            self._make()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _make(self) -> None:
        _ip("link", "add", self._bridge, "address", self._hardware(CLIENTS), "type", "bridge")
        for member in self.members[1:]:
            outside = self._outside(member)
            _ip("netns", "add", self._name(member))
            _ip("link", "add", outside, "type", "veth", "peer", "name", DEVICE, "netns", self._name(member))
            _ip("link", "set", outside, "master", self._bridge, "up")
            self._in(member, "link", "set", DEVICE, "address", self._hardware(member))
            self._in(member, "link", "set", "lo", "up")
        for member in self.members:
            self._in(member, "address", "add", f"{self.host(member)}/24", "dev", self._device(member))
            self._in(member, "link", "set", self._device(member), "up")
        self.restore()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self.members[1:]:  # a namespace removes its device with it, but with a delay
            subprocess.run(["ip", "link", "del", self._outside(member)], capture_output=True, check=False)
            subprocess.run(["ip", "netns", "del", self._name(member)], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", self._bridge], capture_output=True, check=False)

    def drop_packets(self, senders: Iterable[int], receivers: Iterable[int]) -> None:
        """Drop all packets from one set of nodes to another."""
        for sender in senders:
            for receiver in receivers:
                self._neighbour(sender, receiver, UNREACHABLE_MAC)

    def restore(self) -> None:
        """Stop dropping packets."""
        for sender in self.members:
            for receiver in self.members:
                if sender != receiver:
                    self._neighbour(sender, receiver, self._hardware(receiver))

    def _neighbour(self, sender: int, receiver: int, hardware: str) -> None:
        entry = (self.host(receiver), "lladdr", hardware, "dev", self._device(sender), "nud", "permanent")
        self._in(sender, "neighbour", "replace", *entry)
