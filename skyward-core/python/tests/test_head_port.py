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


def run(port: int, body: str) -> str:
    """Return what a worker's process prints."""
    prepare = f"""
    import socket
    from skyward._libraries import head_port
    head, port = {HEAD!r}, {port}
    head_port.share({{"head_addr": head, "head_port": port, "peers_file": {__file__!r}}})

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
    "a name": """
    server = socket.socket()
    server.bind((b"localhost", port))
    server.listen()
    """,
    "a class": """
    class Server(socket.socket):
        def bind(self, address):
            super().bind(address)
    server = Server()
    server.bind(("", port))
    server.listen()
    """,
    "xmlrpc": """
    from xmlrpc.server import SimpleXMLRPCServer
    server = SimpleXMLRPCServer((head, port))
    """,
}


@pytest.mark.parametrize("kind", SERVERS)
def test_a_server_of_python_is_bound_and_a_second_one_is_refused(port: int, kind: str) -> None:
    again = textwrap.dedent("""
    place = "localhost" if "localhost" in KIND else head
    socket.create_connection((place, port), timeout=5).close()
    print(refused(lambda: socket.create_server((place, port))), refused(lambda: socket.socket().bind(("", port))))
    """)
    body = textwrap.dedent(SERVERS[kind])
    assert run(port, body + again.replace("KIND", repr(body))) == "in use in use"


def test_of_two_servers_that_begin_together_one_is_refused(port: int) -> None:
    body = """
    import os, threading
    from multiprocessing import get_context

    first, second = socket.socket(), socket.socket()
    first.bind((head, port))
    print(refused(lambda: second.bind((head, port))))
    first.listen()
    first.close()

    def begin(barrier, won):
        barrier.wait()
        server = socket.socket()
        # A server of Python has it. Without a listener, the kernel would let both bind the port.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if refused(lambda: server.bind((head, port))) == "bound":
            server.listen()
            won.put(os.getpid())
        barrier.wait()
        server.close()

    import queue
    fork = get_context("fork")
    kinds = [(threading.Thread, threading.Barrier, queue.Queue), (fork.Process, fork.Barrier, fork.SimpleQueue)]
    for start, barrier, results in kinds:
        for turn in range(10):
            won, together = results(), barrier(3)
            runs = [start(target=begin, args=(together, won)) for _ in range(3)]
            [run.start() for run in runs], [run.join() for run in runs]
            won.get()
            assert won.empty()
    """
    assert run(port, body) == "in use"


def test_servers_that_ask_for_it_share_the_port(port: int) -> None:
    body = """
    servers = [socket.create_server((head, port), reuse_port=True) for _ in range(3)]
    assert refused(lambda: socket.create_server((head, port))) == "in use"
    only_bound = socket.socket()
    only_bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    only_bound.bind(("127.8.79.2", port))
    assert not only_bound.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    print(len(servers))
    """
    assert run(port, body) == "3"


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


def test_all_addresses_of_both_families_may_have_a_server_each(port: int) -> None:
    # As asyncio makes them, in either order.
    body = """
    four = lambda: socket.create_server(("", port))
    six = lambda: socket.create_server(("", port), family=socket.AF_INET6)
    both = lambda: socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    for order in ((four, six), (six, four)):
        servers = [make() for make in order]
        print([refused(make) for make in (four, six, both)])
        for server in servers:
            server.close()
    kept = both()
    print(refused(four))
    """
    assert run(port, body).split("\n") == ["['in use', 'in use', 'in use']"] * 2 + ["in use"]


def test_other_addresses_have_servers_of_their_own(port: int) -> None:
    # As the nodes of a host have them, and services that only this host may reach.
    body = """
    addresses = [head, "127.8.79.2", "127.0.0.1", "::1"]
    family = lambda addr: socket.AF_INET6 if ":" in addr else socket.AF_INET
    servers = [socket.create_server((addr, port), family=family(addr)) for addr in addresses]
    for addr, server in zip(addresses, servers):
        client = socket.create_connection((addr, port), timeout=5)
        server.settimeout(5)
        server.accept()
        print(refused(lambda: socket.create_server((addr, port), family=family(addr))))
    print(refused(lambda: socket.create_server(("", port))))
    for server in servers[:3]:
        server.close()
    print(refused(lambda: socket.create_server(("", port), family=socket.AF_INET6)))
    print(refused(lambda: socket.create_server(("", port))))
    """
    assert run(port, body).split("\n") == ["in use"] * 6 + ["bound"]


def test_other_ports_and_families_are_as_they_were(port: int) -> None:
    body = """
    shares = lambda server: server.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT)
    other = socket.create_server((head, 0))
    packets = socket.socket(type=socket.SOCK_DGRAM)
    packets.bind((head, port))
    local = socket.socket(socket.AF_UNIX)
    local.bind("\\0skyward-test-%d" % port)
    print([shares(other), shares(packets), local.family == socket.AF_UNIX])
    for wrong in (None, 7, [head, port], (head,), (None, port), (head, port, 0)):
        try:
            socket.socket().bind(wrong)
        except TypeError as error:
            print(type(wrong) is tuple or "must be tuple" in str(error))
    """
    assert run(port, body).split("\n") == ["[0, 0, True]", *["True"] * 6]


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
    "dist.TCPStore(head, port, 1, True, timedelta(seconds=9), True, False, None, True)",
    "dist.TCPStore(head, port, 1, True, master_listen_fd=None)",
    "Store(head, port, 1, True)",
    "next(dist.rendezvous(f'tcp://{head}:{port}', 0, 1))[0]",
    "create_c10d_store(True, head, port, world_size=1)",
]


@pytest.mark.frameworks
def test_a_store_of_torch_is_bound_and_a_second_one_is_refused(port: int) -> None:
    body = """
    from datetime import timedelta
    from torch import distributed as dist
    from torch.distributed.elastic.utils.distributed import create_c10d_store

    class Store(dist.TCPStore):
        def __init__(self, *args):
            super().__init__(*args)

    for wrong in ({"world_size": "x"}, {"nonsense": 1}):
        try:
            dist.TCPStore(head, port, is_master=True, **wrong)
        except TypeError:
            pass
    assert refused(lambda: socket.create_connection((head, port))).endswith("Connection refused")

    elsewhere = dist.TCPStore(head, 0, 1, True)
    socket.create_connection(("127.0.0.1", elsewhere.port)).close()
    wait = timedelta(milliseconds=1)
    refused(lambda: dist.TCPStore(head, port, is_master=False, timeout=wait))
    assert refused(lambda: socket.create_connection((head, port))).endswith("Connection refused")
    for by_name in (True, False):
        given = socket.socket()
        given.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        given.bind((head, port))
        descriptor = given.dup().detach()
        if by_name:
            store = dist.TCPStore(head, port, 1, True, master_listen_fd=descriptor)
        else:
            store = dist.TCPStore(head, port, 1, True, timedelta(seconds=9), True, False, descriptor)
        assert given.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN), by_name
        del store
        given.close()

    for made in STORES:
        store = eval(made)
        store.set("key", "value")
        host = "localhost" if "localhost" in made else head
        clients = [dist.TCPStore(host, port, is_master=False, wait_for_workers=False) for _ in range(4)]
        assert {client.get("key") for client in clients} == {b"value"}, made
        try:
            dist.TCPStore(host, port, 1, True)
        except RuntimeError as error:
            # torch's own, for which callers look.
            assert "EADDRINUSE" in str(error), made
        else:
            raise AssertionError(made)
        reached = refused(lambda: socket.create_connection(("127.0.0.1", port)))
        assert reached.endswith("bound" if host == "localhost" else "refused"), (made, reached)
        base = getattr(store, "underlying_store", store)
        assert isinstance(base.clone(), dist.TCPStore), made
        del store, base, clients
        print("served")
    """
    assert run(port, body.replace("STORES", repr(STORES))).split() == ["served"] * len(STORES)
