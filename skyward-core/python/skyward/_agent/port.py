"""The port that the agent reserves for the rendezvous of a world."""

from __future__ import annotations

import socket

from .._core.address import bindable, family_of


def reserve(address: str) -> socket.socket:
    """Return a socket that holds a port for servers of this user, without listening.

    A server at the port needs SO_REUSEPORT and must belong to the user who made the reservation:
    Linux lets other users bind such a port with no combination of options. Two details matter:

    - SO_REUSEADDR is not set. Where all sockets at a port have it and none listens, any user may
      bind the port.
    - The port is held on all addresses of both families. A user who can bind it on any other
      address can then also bind it on all of them, because Linux remembers at each port the user
      who has bound it last, and compares the address alone.

    Args:
        address: an address of this node, at which a server will listen.

    Raises:
        OSError: this node does not have the address, or no port is free.
    """
    both = socket.has_dualstack_ipv6()
    held = socket.socket(socket.AF_INET6 if both else socket.AF_INET)
    try:
        if both:
            held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        held.bind(("", 0))
        # Not before: a system may choose a port that another socket with this option has.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        # As a server will do it.
        with socket.socket(family_of(address)) as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            server.bind(bindable(address, held.getsockname()[1]))
    except OSError:
        held.close()
        raise
    return held
