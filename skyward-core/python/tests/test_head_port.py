"""Servers of a worker at the head port, which the agent holds."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest

from skyward._agent.port import reserve

HEAD = "127.8.79.1"


@pytest.fixture
def port() -> Iterator[int]:
    """Hold a port, as an agent does."""
    with reserve(HEAD) as held:
        yield held.getsockname()[1]


def run(port: int, body: str, node: int = 0) -> str:
    """Return what a worker's process prints."""
    prepare = f"""
    import socket
    from skyward import _head_port
    head, port = {HEAD!r}, {port}
    _head_port.share({{"node": {node}, "head_addr": head, "head_port": port}})

    def refused(bind):
        try:
            bind()
        except (OSError, RuntimeError) as error:
            return "in use" if "in use" in str(error) else str(error)
        return "bound"
    """
    script = textwrap.dedent(prepare) + textwrap.dedent(body)
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


SERVERS = {
    "socket": """
    server = socket.socket()
    server.bind((head, port))
    server.listen()
    """,
    "all addresses": """
    server = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    """,
    "http.server": """
    import http.server
    server = http.server.ThreadingHTTPServer((head, port), http.server.SimpleHTTPRequestHandler)
    """,
    "multiprocessing": """
    from multiprocessing.managers import BaseManager
    server = BaseManager((head, port), b"key").get_server()
    """,
    "asyncio": """
    import asyncio
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(print, head, port))
    """,
    "xmlrpc": """
    from xmlrpc.server import SimpleXMLRPCServer
    server = SimpleXMLRPCServer((head, port))
    """,
}


@pytest.mark.parametrize("kind", SERVERS)
def test_a_server_of_python_is_bound_and_a_second_one_is_refused(port: int, kind: str) -> None:
    again = textwrap.dedent("""
    socket.create_connection((head, port), timeout=5).close()
    print(refused(lambda: socket.create_server((head, port))), refused(lambda: socket.socket().bind(("", port))))
    """)
    printed = run(port, textwrap.dedent(SERVERS[kind]) + again)
    assert printed == "in use in use"


def test_a_server_follows_one_that_was_closed_with_connections(port: int) -> None:
    body = """
    for turn in range(3):
        with socket.create_server((head, port)) as server:
            client = socket.create_connection((head, port), timeout=5)
            served, _ = server.accept()
        served.close()
        print(turn)
    """
    assert run(port, body).split() == ["0", "1", "2"]


@pytest.mark.parametrize("node", [0, 1])
def test_other_ports_families_and_nodes_are_as_they_were(port: int, node: int) -> None:
    body = """
    shares = lambda server: server.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT)
    other = socket.create_server((head, 0))
    packets = socket.socket(type=socket.SOCK_DGRAM)
    packets.bind((head, port))
    local = socket.socket(socket.AF_UNIX)
    local.bind("\\0skyward-test-%d" % port)
    here = refused(lambda: socket.create_server((head, port)))
    print([shares(other), shares(packets), local.family == socket.AF_UNIX, here])
    """
    here = "bound" if node == 0 else "in use"
    assert run(port, body, node) == f"[0, 0, True, '{here}']"


def test_a_port_that_nobody_holds_is_bound_too() -> None:
    with reserve(HEAD) as held:
        free: int = held.getsockname()[1]
    assert run(free, "print(refused(lambda: socket.create_server((head, port))))") == "bound"


STORES = [
    "dist.TCPStore(head, port, 1, True)",
    "dist.TCPStore(host_name=head, port=port, is_master=True, use_libuv=False)",
    "dist.TCPStore(head, port, 1, True, timedelta(seconds=9), False, False)",
    "dist.TCPStore('localhost', port, 1, True)",
    "dist.TCPStore(head, port, 1, True, multi_tenant=True)",
    "next(dist.rendezvous(f'tcp://{head}:{port}', 0, 1))[0]",
    "create_c10d_store(True, head, port, world_size=1)",
]


@pytest.mark.frameworks
def test_a_store_of_torch_is_bound_and_a_second_one_is_refused(port: int) -> None:
    body = """
    from datetime import timedelta
    from torch import distributed as dist
    from torch.distributed.elastic.utils.distributed import create_c10d_store

    for made in STORES:
        store = eval(made)
        store.set("key", "value")
        host = "localhost" if "localhost" in made else head
        clients = [dist.TCPStore(host, port, is_master=False, wait_for_workers=False) for _ in range(4)]
        assert {client.get("key") for client in clients} == {b"value"}, made
        assert refused(lambda: dist.TCPStore(host, port, 1, True)) == "in use", made
        base = getattr(store, "underlying_store", store)
        assert isinstance(base.clone(), dist.TCPStore), made
        del store, base, clients
        print("served")
    """
    assert run(port, body.replace("STORES", repr(STORES))).split() == ["served"] * len(STORES)
