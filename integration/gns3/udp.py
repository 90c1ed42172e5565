"""A guest behind a Cloud with a UDP port: the test is the far end, and reads and writes single frames."""

import socket
import struct

from lab import CLOUD_UDP_PORT, FAR_ADDRESS, FAR_UDP_PORT, GUEST, Lab
from process import check, wait_until

OURS = bytes.fromhex("02000000004f")
BROADCAST = b"\xff" * 6
ARP, IPV4 = b"\x08\x06", b"\x08\x00"


def checksum(data: bytes) -> bytes:
    total = sum(struct.unpack(f"!{(len(data) + 1) // 2}H", data + b"\0" * (len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return struct.pack("!H", ~total & 0xFFFF)


def arp(operation: int, to: bytes, target: bytes) -> bytes:
    header = struct.pack("!HHBBH", 1, 0x0800, 6, 4, operation)
    return to + OURS + ARP + header + OURS + socket.inet_aton(FAR_ADDRESS) + target + socket.inet_aton(GUEST[2])


def echo_request(to: bytes, number: int, payload: bytes) -> bytes:
    message = struct.pack("!HHHH", 0x0800, 0, 1, number) + payload
    message = message[:2] + checksum(message) + message[4:]
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(message), 1, 0, 64, 1, 0)
    header += socket.inet_aton(FAR_ADDRESS) + socket.inet_aton(GUEST[2])
    header = header[:10] + checksum(header) + header[12:]
    return to + OURS + IPV4 + header + message


def is_reply_to(number: int):
    return lambda got: got[12:14] == IPV4 and got[34:36] == b"\0\0" and got[40:42] == struct.pack("!H", number)


class FarEnd:
    def __init__(self):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", FAR_UDP_PORT))
        self.socket.settimeout(0.5)

    def send(self, frame: bytes) -> None:
        self.socket.sendto(frame, ("127.0.0.1", CLOUD_UDP_PORT))

    def answer(self, frame: bytes, wanted) -> bytes:
        """Sends a frame, again and again, until what comes back is wanted."""

        def exchange() -> bytes | None:
            self.send(frame)
            try:
                while not wanted(got := self.socket.recv(65536)):
                    pass
                return got
            except TimeoutError:
                return None

        return wait_until("the guest answers", exchange)


def run(lab: Lab) -> None:
    far = FarEnd()
    try:
        reply = far.answer(arp(1, BROADCAST, bytes(6)), lambda got: got[12:14] == ARP and got[20:22] == b"\0\2")
        guest = reply[22:28]
        check(reply[:6] == OURS and reply[28:32] == socket.inet_aton(GUEST[2]), f"a strange reply: {reply.hex()}")
        for size in (1, 56, 1472):
            payload = bytes(number % 251 for number in range(size))
            got = far.answer(echo_request(guest, size, payload), is_reply_to(size))
            # Ethernet pads short frames, and may leave the padding.
            check(got[42 : 42 + size] == payload, f"an echo of {size} bytes came back changed: {got.hex()}")
            check(len(got) in (42 + size, 60), f"an echo of {size} bytes came back as a frame of {len(got)}")
    finally:
        far.socket.close()
    lab.say("frames pass a UDP port both ways")
