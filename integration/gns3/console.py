"""The guest's console: runs commands in the guest, through gns3-server's telnet."""

import itertools
import re
import socket
import time

from process import PATIENCE, START_PATIENCE, Failure, check, wait_until

IAC, SB, SE, WILL, DONT = 255, 250, 240, 251, 254


class Console:
    """Commands run one after the other; each ends with a mark of its own, and its exit status."""

    def __init__(self, host: str, port: int):
        self.heard = b""  # everything, for a failure's report
        self.unread = b""
        self.numbers = itertools.count(1)
        self.socket = wait_until("the console is there", lambda: self._connect(host, port))

    @staticmethod
    def _connect(host: str, port: int):
        try:
            return socket.create_connection((host, port), timeout=10)
        except OSError:
            return None

    def boot(self, patience: float = START_PATIENCE) -> None:
        """Waits until the guest runs commands."""
        end = time.monotonic() + patience
        while True:
            check(time.monotonic() < end, "waited in vain until the guest has started")
            # The first bytes may get lost while the guest sets up its serial port.
            try:
                self.run("", patience=1)
                return
            except TimeoutError:
                pass

    def run(self, command: str, patience: float = PATIENCE) -> tuple[int, str]:
        """The exit status of a command and what it printed."""
        number = next(self.numbers)
        # In two parts, so that an echo of the command is not taken for its end.
        self.socket.sendall(f"\n{command}\necho END-''{number}-$status\n".encode())
        end = time.monotonic() + patience
        mark = re.compile(rb"END-%d-(\d+)\r?\n" % number)
        while not (match := mark.search(self.unread)):
            self._receive(end - time.monotonic())
        text, self.unread = self.unread[: match.start()], self.unread[match.end() :]
        return int(match[1]), text.decode(errors="replace").replace("\r", "")

    def succeed(self, command: str, patience: float = PATIENCE) -> str:
        status, text = self.run(command, patience)
        check(status == 0, f"in the guest, `{command}` ended with {status}: {text}")
        return text

    def _receive(self, seconds: float) -> None:
        if seconds <= 0:
            raise TimeoutError("the guest does not answer")
        self.socket.settimeout(seconds)
        data = self.socket.recv(65536)
        if not data:
            raise Failure("the console was closed")
        self.heard += data
        self.unread += without_telnet(data)

    def close(self) -> None:
        self.socket.close()


def without_telnet(data: bytes) -> bytes:
    """What is left without telnet's own commands. They come first of all, so none is cut by the end of the data."""
    text, at = bytearray(), 0
    while at < len(data):
        if data[at] != IAC:
            text.append(data[at])
            at += 1
        elif at + 1 < len(data) and data[at + 1] == SB:
            at = data.find(bytes([IAC, SE]), at) + 2
        else:
            at += 3 if at + 1 < len(data) and WILL <= data[at + 1] <= DONT else 2
    return bytes(text)
