"""Request and response over one TCP connection, 8 KiB each way: the two ends of the latency scenario.

pingpong.py serve               answers one client
pingpong.py ask HOST TRIPS      prints the median and the 99th percentile of the round trips, as JSON
"""

import json
import socket
import statistics
import sys
import time

PORT = 7700
PAYLOAD = bytes(8 * 1024)
WARM_UP = 50


def receive(connection: socket.socket) -> bool:
    """One whole payload; False once the other end has closed."""
    missing = len(PAYLOAD)
    while missing:
        got = len(connection.recv(missing))
        if not got:
            return False
        missing -= got
    return True


def serve() -> None:
    with socket.create_server(("", PORT)) as listener:
        print("listening", flush=True)
        connection, _ = listener.accept()
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while receive(connection):
            connection.sendall(PAYLOAD)


def ask(host: str, trips: int) -> None:
    times = []
    with socket.create_connection((host, PORT), timeout=3) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(WARM_UP + trips):
            start = time.perf_counter()
            connection.sendall(PAYLOAD)
            if not receive(connection):
                sys.exit("the server closed the connection")
            times.append((time.perf_counter() - start) * 1e6)
    times = times[WARM_UP:]
    print(json.dumps({"median_us": statistics.median(times), "p99_us": statistics.quantiles(times, n=100)[98]}))


if sys.argv[1] == "serve":
    serve()
else:
    ask(sys.argv[2], int(sys.argv[3]))
