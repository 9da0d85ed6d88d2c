"""Addresses that sockets take, also IPv6 addresses with a zone: `fe80::1%eth0`."""

from __future__ import annotations

import socket


def family_of(address: str) -> socket.AddressFamily:
    """Return the family of an address; a name counts as one of IPv4."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def bindable(address: str, port: int) -> tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]:
    """Return an address and a port as `bind` takes them.

    A zone has to be a number of its own there: `bind` drops one in the text of the address.

    Raises:
        OSError: there is no such address or zone.
    """
    if "%" not in address:
        return (address, port)
    return socket.getaddrinfo(address, port, family_of(address), socket.SOCK_STREAM)[0][4]
