"""The world outside the lab: a network namespace at the far end of the NIC that the lab uses."""

import contextlib
import os
import subprocess
from pathlib import Path

from process import PATIENCE, background, run, wait_until

NIC = "nic0"  # in the lab
PEER, ADDRESS = "wan0", "10.77.0.1"  # outside


class Outside:
    def __init__(self, holder: subprocess.Popen):
        self.enter = ["nsenter", "--net", f"--target={holder.pid}"]

    def run(self, *command: str, timeout: float = PATIENCE) -> str:
        return run(*self.enter, *command, timeout=timeout)

    def reaches(self, address: str) -> bool:
        command = [*self.enter, "ping", "-n", "-c", "1", "-W", "1", address]
        return subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL).returncode == 0

    def wire(self, gro: bool) -> None:
        """Sends single frames from now on, as a wire would; the NIC merges them, or has all its offloads off."""
        self.run("ethtool", "-K", PEER, *"tx off tso off gso off gro off".split())
        run("ethtool", "-K", NIC, *("gro on" if gro else "tx off tso off gso off gro off").split())


@contextlib.contextmanager
def outside():
    """Offloads are as the kernel sets them, and the NIC merges what it receives."""
    # The namespace lives as long as the program in it, which ends when this one does.
    with background(["unshare", "--net", "cat"], stdin=subprocess.PIPE) as holder:
        ours = os.readlink("/proc/self/ns/net")
        wait_until("the outside has its namespace", lambda: os.readlink(f"/proc/{holder.pid}/ns/net") != ours)
        world = Outside(holder)
        run("ip", "link", "add", NIC, "type", "veth", "peer", "name", PEER, "netns", str(holder.pid))
        world.run("ip", "address", "add", f"{ADDRESS}/24", "dev", PEER)
        world.run("ip", "link", "set", PEER, "up")
        run("ip", "link", "set", NIC, "up")
        run("ethtool", "-K", NIC, "gro", "on")
        wait_until("the NIC has its carrier", lambda: "state UP" in run("ip", "-o", "link", "show", "dev", NIC))
        yield world


def interfaces() -> set[str]:
    return {path.name for path in Path("/sys/class/net").iterdir()}
