"""Find the network interface that has a given address."""

from __future__ import annotations

import fcntl
import socket
import struct

_GET_ADDRESS = 0x8915  # SIOCGIFADDR
_INET6 = "/proc/net/if_inet6"


def interface_of(address: str) -> str | None:
    """Return the name of the interface that has this address, or None if this host has none.

    Without this name, gloo and NCCL choose an interface by the host name, and its address often
    cannot be reached by the peers.
    """
    if ":" in address:
        return _of_inet6(address)
    if address.startswith("127."):
        return "lo"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe, _GET_ADDRESS, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    return None


def _of_inet6(address: str) -> str | None:
    plain, _, zone = address.partition("%")
    try:
        packed = socket.inet_pton(socket.AF_INET6, plain).hex()
        with open(_INET6) as table:
            for line in table:
                fields = line.split()
                # Interfaces may have the same link-local address: the zone names one, or has its number.
                if fields and fields[0] == packed and zone in ("", fields[-1], str(int(fields[1], 16))):
                    return fields[-1]
    except OSError:
        pass  # not an address, or the system does not have this file
    return None
