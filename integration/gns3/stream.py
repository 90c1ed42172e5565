"""One end of a TCP connection, for a network namespace of its own: moves bytes and prints their SHA-256.

usage: stream.py send <address> <port> <bytes>
       stream.py receive <address> <port>
"""

import hashlib
import os
import socket
import sys


def main(action: str, address: str, port: str, size: str = "0") -> None:
    total = hashlib.sha256()
    with socket.create_connection((address, int(port)), timeout=60) as connection:
        if action == "send":
            data = os.urandom(int(size))
            total.update(data)
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        # Also after sending: the end is what says that everything has arrived.
        while data := connection.recv(65536):
            total.update(data)
    print(total.hexdigest())


if __name__ == "__main__":
    main(*sys.argv[1:])
