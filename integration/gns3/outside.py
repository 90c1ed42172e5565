"""The world outside the lab: a network namespace at the far end of the NIC that the lab uses."""

import contextlib
import os
import subprocess
from pathlib import Path

from process import background, run, wait_until

NIC = "nic0"  # the lab's side
ADDRESS = "10.77.0.1"  # the outside's


class Outside:
    def __init__(self, holder: subprocess.Popen):
        self.enter = ["nsenter", "--net", f"--target={holder.pid}"]

    def run(self, *command: str, timeout: float = 60) -> str:
        return run(*self.enter, *command, timeout=timeout)

    def reaches(self, address: str) -> bool:
        command = [*self.enter, "ping", "-n", "-c", "1", "-W", "1", address]
        return subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL).returncode == 0


@contextlib.contextmanager
def outside(gro: bool = True):
    """With `gro` the NIC merges what it receives, and every other offload is as the kernel sets it; else all are off."""
    # The namespace lives as long as the program in it, which ends when this one does.
    holding = background(["unshare", "--net", "cat"], stdin=subprocess.PIPE)
    with holding as holder:
        ours = os.readlink("/proc/self/ns/net")
        wait_until("the outside has its namespace", lambda: os.readlink(f"/proc/{holder.pid}/ns/net") != ours)
        world = Outside(holder)
        run("ip", "link", "add", NIC, "type", "veth", "peer", "name", "wan0", "netns", str(holder.pid))
        world.run("ip", "address", "add", f"{ADDRESS}/24", "dev", "wan0")
        world.run("ip", "link", "set", "wan0", "up")
        run("ip", "link", "set", NIC, "up")
        features = "gro on" if gro else "tx off tso off gso off gro off"
        run("ethtool", "-K", NIC, *features.split())
        if not gro:
            world.run("ethtool", "-K", "wan0", *features.split())
        wait_until("the NIC has its carrier", lambda: "state UP" in run("ip", "-o", "link", "show", "dev", NIC))
        yield world


def interfaces() -> set[str]:
    return {path.name for path in Path("/sys/class/net").iterdir()}
