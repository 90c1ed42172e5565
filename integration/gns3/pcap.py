"""Reads capture files, also while they grow."""

import struct
from pathlib import Path

ETHERNET = 1


def frames(path: Path) -> list[bytes]:
    """The complete frames of a capture."""
    data = path.read_bytes()
    if len(data) < 24:
        return []
    order = "<" if data[:4] == b"\xd4\xc3\xb2\xa1" else ">"
    magic, link_type = struct.unpack_from(order + "I16xI", data)
    assert magic == 0xA1B2C3D4 and link_type == ETHERNET, f"not a capture of Ethernet: {data[:24].hex()}"
    found, at = [], 24
    while at + 16 <= len(data):
        captured = struct.unpack_from(order + "8xI", data, at)[0]
        frame = data[at + 16 : at + 16 + captured]
        if len(frame) < captured:
            break
        found.append(frame)
        at += 16 + captured
    return found
