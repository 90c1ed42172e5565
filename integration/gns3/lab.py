"""The lab of a test: the outside, a server, and a project with a guest in it.

    outside (10.77.0.1) == nic0 -- Cloud ----- eth0 (10.77.0.2)
    virbr0 (10.78.0.1) -- gns3tap -- NAT ----- eth1 (10.78.0.2)   guest
    test (10.79.0.1) -- UDP socket -- Cloud -- eth2 (10.79.0.2)
"""

import contextlib
import json
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import TextIO

from console import Console
from outside import NIC, Outside, interfaces, outside
from process import PATIENCE, check, end_others, named, run, wait_until
from server import HOST, Server
from topology import Link, Project

GUEST = ["10.77.0.2", "10.78.0.2", "10.79.0.2"]
BRIDGE, BRIDGE_ADDRESS = "virbr0", "10.78.0.1"
FAR_ADDRESS = "10.79.0.1"
CLOUD_UDP_PORT, FAR_UDP_PORT = 40000, 40001


class Lab:
    def __init__(self, server: Server, world: Outside, output: TextIO):
        self.server, self.outside, self.output = server, world, output
        self.begin = time.monotonic()
        self.console: Console | None = None
        self.before = interfaces()
        self.project = Project(server, "lab")
        udp = {"lport": CLOUD_UDP_PORT, "rhost": "127.0.0.1", "rport": FAR_UDP_PORT}
        self.cloud = self.project.cloud(
            "cloud",
            {"name": NIC, "type": "ethernet", "interface": NIC},
            {"name": "udp0", "type": "udp", **udp},
        )
        self.nat = self.project.node("nat", "nat")
        self.guest = self.project.guest([f"{address}/24" for address in GUEST])
        self.nic_link = self.link_nic()
        self.nat_link = self.link_nat()
        self.udp_link = self.project.link((self.cloud, 0, 1), (self.guest, 2, 0))

    def link_nic(self, filters_at_guest: bool = False) -> Link:
        ends = [(self.cloud, 0, 0), (self.guest, 0, 0)]
        return self.project.link(*(reversed(ends) if filters_at_guest else ends))

    def link_nat(self) -> Link:
        return self.project.link((self.nat, 0, 0), (self.guest, 1, 0))

    def boot(self) -> None:
        self.guest.start()
        self.console = Console(HOST, self.guest.console())
        self.console.boot()

    def leave_console(self) -> None:
        if self.console:
            self.console.close()
            self.console = None

    def guest_reaches(self, address: str) -> bool:
        return self.console.run(f"ping -c 1 -W 1 {address}")[0] == 0

    def until_guest_reaches(self, address: str) -> None:
        wait_until(f"the guest reaches {address}", lambda: self.guest_reaches(address))

    def fastest_ping(self, address: str) -> float:
        """The shortest of some round trips, in milliseconds."""
        report = self.console.succeed(f"ping -c 5 -i 0.2 -W 2 {address}")
        return min(float(time) for time in re.findall(r"time=([0-9.]+) ms", report))

    def iperf3(self, runner, address: str, *options: str, seconds: int = 2) -> dict:
        """A transfer to the guest, or with "-R" from it; `runner` runs the client."""
        # A server for one client: one that serves many is not always ready for the next.
        self.console.run("killall -q iperf3; wait")
        self._listen("iperf3 -s -1", 5201)
        command = ["iperf3", "-c", address, "-J", "-t", str(seconds), "--connect-timeout", "5000", *options]
        moved = figures(runner(*command, timeout=seconds + PATIENCE))
        check(moved["bytes"] > 0, f"nothing arrived: {moved}")
        return moved

    def check_stream(self, runner, address: str, size: int) -> None:
        """Moves bytes over TCP to the guest and from it, and compares every one."""
        client = [sys.executable, "-B", str(Path(__file__).parent / "stream.py")]
        self._listen("nc -l -p 5300 >/tmp/received", 5300)
        sent = runner(*client, "send", address, "5300", str(size))
        self._same(sent, "received")
        self.console.succeed(f"head -c {size} /dev/urandom >/tmp/sent")
        self._listen("nc -l -p 5301 </tmp/sent", 5301)
        self._same(runner(*client, "receive", address, "5301"), "sent")

    def _listen(self, program: str, port: int) -> None:
        self.console.succeed(f"{program} &")
        command = f"netstat -ltn | grep -q :{port}"
        wait_until(f"`{program}` listens", lambda: self.console.run(command)[0] == 0)

    def _same(self, ours: str, file: str) -> None:
        self.console.succeed("wait $!")
        theirs = self.console.succeed(f"sha256sum /tmp/{file}; rm /tmp/{file}").split()[0]
        check(ours.strip() == theirs, f"the bytes {file} by the guest are not the same on both sides")

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.begin:6.1f} s  {text}", file=self.output, flush=True)


def figures(report: str) -> dict:
    """What counts in iperf3's JSON."""
    report = json.loads(report)
    # It may call a test that broke off a success, and still name the error.
    check("error" not in report, f"iperf3: {report.get('error')}")
    sent, received = report["end"]["sum_sent"], report["end"]["sum_received"]
    megabits = round(received["bits_per_second"] / 1e6, 1)
    return {"mbps": megabits, "bytes": received["bytes"], "retransmits": sent.get("retransmits", 0)}


def make_bridge() -> None:
    """What libvirt makes for its default network, which the NAT node looks for."""
    # With an address of its own: otherwise it would change with the ports.
    run("ip", "link", "add", BRIDGE, "address", "52:54:00:4e:41:54", "type", "bridge", "forward_delay", "0")
    run("ip", "address", "add", f"{BRIDGE_ADDRESS}/24", "dev", BRIDGE)
    run("ip", "link", "set", BRIDGE, "up")


def report(server: Server, lab: Lab | None) -> None:
    """What helps to understand a failure."""
    print(f"--- server.log\n{server.log.read_text(errors='replace')[-20000:]}", file=sys.stderr)
    for node, text in server.ubridge_logs().items():
        print(f"--- ubridge.log of node {node}\n{text[-5000:]}", file=sys.stderr)
    if lab and lab.console:
        print(f"--- console\n{lab.console.heard[-5000:].decode(errors='replace')}", file=sys.stderr)


@contextlib.contextmanager
def lab(version: str, ubridge: Path, output: TextIO = sys.stdout):
    """A lab whose guest has started; it tells on `output` how far it is."""
    made = None
    with tempfile.TemporaryDirectory(prefix="rubridge-gns3-") as directory, outside() as world:
        make_bridge()
        server = Server(version, ubridge, Path(directory))
        try:
            server.ready()
            made = Lab(server, world, output)
            made.boot()
            made.say("the guest has started")
            yield made
        except BaseException:
            report(server, made)
            raise
        finally:
            # Before its directory is removed.
            end_others()


def ubridges() -> list[int]:
    return named("ubridge")
