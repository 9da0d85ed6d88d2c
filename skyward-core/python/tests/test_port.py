"""The port that an agent reserves: servers of its own user get it, and no other user does."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys

import pytest

from skyward._agent.port import reserve
from skyward._core import wire
from skyward._core.address import bindable

from .conftest import Node
from .other_user import grab, grabbing, needs_root, running

ADDRESSES = ["127.8.77.9", "127.0.0.1", "::1"]


def family(addr: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in addr else socket.AF_INET


def listen(addr: str, port: int) -> socket.socket:
    return socket.create_server((addr, port), family=family(addr), reuse_port=True)


def attacked(addr: str, port: int, connections: int = 1) -> list[str]:
    """Let another user try everything, then connect; return what that user could bind."""

    def attack(end: int, begin: int) -> list[str]:
        servers, bound = grab(addr, port)
        os.write(begin, b"+")
        os.read(end, 1)
        for server in servers:
            try:
                server.accept()
                bound.append("and got a connection")
            except BlockingIOError:
                pass
        return bound

    with running(attack) as finish:
        for _ in range(connections):
            with socket.socket(family(addr)) as client:
                client.connect_ex((addr, port))
        found: list[str] = finish()
        return found


def zoned() -> list[str]:
    """Return an address of this host with a zone, by the name of its interface and by its number."""
    with open("/proc/net/if_inet6") as table:
        local = [line.split() for line in table if line.split()[3] == "20"]
    if not local:
        # Without a link-local address, only a number is a zone.
        return ["::1%1"]
    packed, number, *_, name = local[0]
    plain = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(packed))
    return [f"{plain}%{name}", f"{plain}%{int(number, 16)}"]


@pytest.mark.parametrize("addr", zoned())
def test_a_port_of_an_address_with_a_zone_is_reserved_and_served(addr: str) -> None:
    with reserve(addr) as held:
        port = held.getsockname()[1]
        with socket.socket(socket.AF_INET6) as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            server.bind(bindable(addr, port))
            server.listen()
            with socket.create_connection((addr, port), timeout=60):
                pass


def test_a_zone_that_does_not_exist_is_an_error_of_the_system() -> None:
    with pytest.raises(OSError):
        reserve("fe80::1%none")


@needs_root
@pytest.mark.parametrize("addr", ADDRESSES)
def test_no_other_user_gets_a_reserved_port_at_any_time(addr: str) -> None:
    with reserve(addr) as held:
        port = held.getsockname()[1]
        # Twice: what the first attempt leaves behind may help the second.
        assert attacked(addr, port) == [], "before a server listens"
        assert attacked(addr, port) == [], "before a server listens, again"
        with listen(addr, port) as server:
            assert attacked(addr, port) == [], "while a server listens"
            clients = [socket.create_connection((addr, port)) for _ in range(4)]
            served = [server.accept()[0] for _ in clients]
        assert attacked(addr, port) == [], "while connections of a closed server live"
        for connection in (*clients[:2], *served[1:3]):
            connection.close()
        assert attacked(addr, port) == [], "after connections of a closed server"
        with listen(addr, port) as server, socket.create_connection((addr, port), timeout=5):
            server.accept()[0].close()
        for connection in (*clients, *served):
            connection.close()


@needs_root
def test_no_other_user_gets_the_port_of_an_agent(node: Node) -> None:
    node.agent.send([wire.RESERVE_PORT, 3])
    _, _, addr, port = node.agent.expect(wire.PORT)[0]
    with running(grabbing(addr, port)) as finish:
        for _ in range(100):
            with listen(addr, port) as server, socket.create_connection((addr, port), timeout=5):
                server.accept()[0].close()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((addr, port), timeout=5)
        assert finish() == [[], 0]


@needs_root
def test_no_other_user_gets_the_port_of_an_earlier_generation(node: Node) -> None:
    ports = []
    for request in range(66):
        node.agent.send([wire.RESERVE_PORT, request])
        _, _, addr, port = node.agent.expect(wire.PORT)[0]
        ports.append(port)
    assert len(set(ports[2:])) == 64
    assert [attacked(addr, port) for port in (ports[2], ports[-1])] == [[], []]
    # An agent does not keep them for ever.
    assert attacked(addr, ports[1]) != [] or ports[1] in ports[2:]


@needs_root
def test_both_families_are_held_whatever_the_default_of_the_host() -> None:
    code = "from skyward._agent.port import reserve; print(reserve('127.0.0.1').getsockopt(41, 26))"
    script = f'echo 1 > /proc/sys/net/ipv6/bindv6only && ip link set lo up && exec "$0" -c "{code}"'
    command = ["unshare", "--net", "sh", "-c", script, sys.executable]
    assert subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout == "0\n"


@pytest.mark.parametrize("addr", ADDRESSES)
def test_servers_of_the_same_user_listen_at_a_reserved_port(addr: str) -> None:
    def serves(kind: socket.AddressFamily, at: str, *options: int) -> bool:
        with socket.socket(kind) as server:
            if kind == socket.AF_INET6:
                server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            for option in options:
                server.setsockopt(socket.SOL_SOCKET, option, 1)
            server.bind((at, port))
            server.listen()
            with socket.create_connection((addr, port), timeout=5):
                server.accept()[0].close()
        return True

    with reserve(addr) as held:
        port = held.getsockname()[1]
        assert serves(family(addr), addr, socket.SO_REUSEPORT)
        # As gRPC does it.
        mapped = addr if ":" in addr else f"::ffff:{addr}"
        for at in (mapped, "::"):
            assert serves(socket.AF_INET6, at, socket.SO_REUSEPORT, socket.SO_REUSEADDR)
        with pytest.raises(OSError) as refused:
            serves(family(addr), addr, socket.SO_REUSEADDR)
        assert refused.value.errno == errno.EADDRINUSE


def test_a_port_is_reserved_only_on_a_node_that_has_the_address() -> None:
    for addr in ("192.0.2.1", "2001:db8::1"):
        with pytest.raises(OSError) as refused:
            reserve(addr)
        assert refused.value.errno == errno.EADDRNOTAVAIL


@pytest.mark.parametrize("method", [None, "spawn", "forkserver"])
def test_a_worker_and_its_processes_listen_at_the_port_of_an_agent(node: Node, method: str | None) -> None:
    node.agent.send([wire.RESERVE_PORT, 3])
    _, _, addr, port = node.agent.expect(wire.PORT)[0]
    source = f"""
        import multiprocessing, socket
        import skyward as sky
        def serve():
            with socket.create_server((sky.instance_info().head_addr, sky.instance_info().head_port)) as server:
                return server.getsockname()
        def main():
            if {method is None}:
                return serve()
            with multiprocessing.get_context({method!r}).Pool(1) as pool:
                return pool.apply(serve)
    """
    worker = node.ready(source, cluster={"head_addr": addr, "head_port": port})
    assert worker.call(1) == [addr, port]
