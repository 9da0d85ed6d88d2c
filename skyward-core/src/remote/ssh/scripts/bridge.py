"""Connect standard input and output with a Unix socket."""

import os
import socket
import sys
import threading

CHUNK = 1 << 18

peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
try:
    peer.connect(sys.argv[1])
except OSError as error:
    print("skyward-refused", error.strerror, flush=True)
    sys.exit(1)
print("skyward-open", flush=True)


def to_peer() -> None:
    """Copy until standard input ends."""
    try:
        while chunk := os.read(0, CHUNK):
            peer.sendall(chunk)
        peer.shutdown(socket.SHUT_WR)
    except OSError:
        os._exit(0)


threading.Thread(target=to_peer, daemon=True).start()
try:
    while chunk := peer.recv(CHUNK):
        rest = memoryview(chunk)
        while rest:
            rest = rest[os.write(1, rest) :]
except OSError:
    pass
os._exit(0)
