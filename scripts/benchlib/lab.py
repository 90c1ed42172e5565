"""The lab of one run: three network namespaces, and the contestant in the middle one.

    wan: wan0 10.77.0.1  ==veth==  sut: nic0 [the contestant] tap0  -->  vm: tap0 10.77.0.2

`sut` (the system under test) has no address, so every byte between `wan` and `vm` passes the contestant: one process, or
two with a tunnel between them. Where the contestant bridges two tunnels, all traffic stays in `sut`.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path

PREFIX = "rbench"
ROLES = ("wan", "sut", "vm")
VM_ADDRESS = "10.77.0.2"

# The bridges of each path, from the outside to the VM; the contestant runs a process for each.
DIRECT = [("linux_raw:nic0", "tap:tap0")]
PCAP = [("ethernet:nic0", "tap:tap0")]
TWO_HOPS = [("linux_raw:nic0", "udp:20000:127.0.0.1:20001"), ("udp:20001:127.0.0.1:20000", "tap:tap0")]
TUNNELS = [("udp:20000:127.0.0.1:20001", "udp:20002:127.0.0.1:20003")]
FAR_ENDS = ["20001:20000", "20003:20002"]

ALL_OFF = "tx off tso off gso off gro off"
# What each group of scenarios sets with ethtool -K; the kernel contestant alone has vm0 and vm0b.
OFFLOADS = {
    "gro": {"wan0": "tx off tso off gso off", "nic0": "gro on"},
    "tso": {},
    "off": {"wan0": ALL_OFF, "nic0": ALL_OFF, "vm0b": ALL_OFF, "vm0": ALL_OFF},
}


class BenchError(Exception):
    """Something the user can put right; the message says what."""


def run(*command: str) -> str:
    """Runs a command to its end; its standard output, or a BenchError with what it complained about."""
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        complaint = done.stderr.strip() or f"exit status {done.returncode}"
        raise BenchError(f"`{' '.join(command)}` failed: {complaint}")
    return done.stdout


def namespace(role: str) -> str:
    """Named after this process, so that runs side by side do not collide and leftovers show."""
    return f"{PREFIX}-{os.getpid()}-{role}"


def inside(role: str, *command: str) -> list[str]:
    return ["ip", "netns", "exec", namespace(role), *command]


def ip(role: str, *arguments: str) -> None:
    run("ip", "-n", namespace(role), *arguments)


def ethtool(role: str, interface: str, settings: str | None) -> None:
    if settings:
        run(*inside(role, "ethtool", "-K", interface, *settings.split()))


def sweep() -> None:
    """Removes what a killed earlier run left: namespaces whose process is gone, and whatever still runs in them."""
    for line in run("ip", "netns", "list").splitlines():
        name = line.split()[0]
        match = re.fullmatch(rf"{PREFIX}-(\d+)-({'|'.join(ROLES)})", name)
        if not match or Path("/proc", match[1]).exists():
            continue
        for pid in run("ip", "netns", "pids", name).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        run("ip", "netns", "del", name)


@contextlib.contextmanager
def process(command: list[str], log: Path, goodbye: signal.Signals = signal.SIGKILL):
    """A process in the background that never outlives the block."""
    with log.open("wb") as output:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield child
    finally:
        child.send_signal(goodbye)
        try:
            child.wait(2)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def wait_until(ready, child: subprocess.Popen, log: Path, what: str, seconds: float = 5) -> None:
    """Polls `ready`; a child that ends or dawdles is an error that shows what it said."""
    deadline = time.monotonic() + seconds
    while not ready():
        ended = child.poll() is not None
        if ended or time.monotonic() > deadline:
            said = log.read_text(errors="replace").strip()[-2000:] or "nothing"
            how = f"ended with status {child.returncode}" if ended else f"was not ready after {seconds:g} s"
            raise BenchError(f"{what} {how}; it said: {said}")
        time.sleep(0.01)


class Kernel:
    """The Linux bridge between nic0 and a veth pair, whose other end is the VM's interface."""

    name = "kernel"
    needs_offloads_off = False
    direct_only = True

    @contextlib.contextmanager
    def attached(self, directory: Path, offloads: dict[str, str], bridges: list):
        ip("sut", "link", "add", "vm0b", "type", "veth", "peer", "name", "vm0", "netns", namespace("vm"))
        ip("sut", "link", "add", "br0", "type", "bridge")
        for port in ("nic0", "vm0b"):
            ip("sut", "link", "set", port, "master", "br0")
        ethtool("sut", "vm0b", offloads.get("vm0b"))
        ethtool("vm", "vm0", offloads.get("vm0"))
        ip("sut", "link", "set", "vm0b", "up")
        ip("sut", "link", "set", "br0", "up")
        plug_in("vm0")
        yield []


class Program:
    """A bridge in userspace, whose TAP, if it has one, moves into the VM's namespace."""

    direct_only = False

    def __init__(self, name: str, binary: str, *options: str):
        self.name, self.binary, self.options = name, binary, options
        self.needs_offloads_off = bool(options)

    def command(self, nios: tuple[str, str], config: Path) -> list[str]:
        return [self.binary, "bridge", *self.options, *nios]

    def ready(self, nios: tuple[str, str], log: Path) -> bool:
        return any(line.startswith("forwarding") for line in log.read_text(errors="replace").splitlines())

    @contextlib.contextmanager
    def attached(self, directory: Path, offloads: dict[str, str], bridges: list):
        with contextlib.ExitStack() as stack:
            children = []
            for number, nios in enumerate(bridges):
                log = directory / f"program{number}.log"
                command = inside("sut", *self.command(nios, directory / f"bridge{number}.ini"))
                children.append(stack.enter_context(process(command, log, signal.SIGINT)))
                wait_until(lambda nios=nios, log=log: self.ready(nios, log), children[-1], log, self.name)
            if any("tap:tap0" in nios for nios in bridges):
                ip("sut", "link", "set", "tap0", "netns", namespace("vm"))
                plug_in("tap0")
            yield children


class Peer(Program):
    """Another program with ubridge's command line; it says nothing when it runs, so its NIOs have to tell."""

    def __init__(self, name: str, binary: str):
        super().__init__(name, binary)
        self.needs_offloads_off = True

    def command(self, nios: tuple[str, str], config: Path) -> list[str]:
        ends = (nio.split(":", 1) for nio in nios)
        lines = [f"{side}_{kind} = {rest}" for side, (kind, rest) in zip(("source", "destination"), ends)]
        config.write_text("\n".join(["[bridge0]", *lines, ""]))
        return [self.binary, "-f", str(config)]

    def ready(self, nios: tuple[str, str], log: Path) -> bool:
        if "tap:tap0" in nios:
            show = ["ip", "-n", namespace("sut"), "link", "show", "tap0"]
            return subprocess.run(show, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
        port = int(nios[1].split(":")[1])
        return f":{port:04X} " in run(*inside("sut", "cat", "/proc/net/udp"))


def plug_in(interface: str) -> None:
    """Makes `interface` the network card of the VM."""
    ip("vm", "addr", "add", f"{VM_ADDRESS}/24", "dev", interface)
    ip("vm", "link", "set", interface, "up")


@contextlib.contextmanager
def lab(contestant, bridges: list, group: str):
    """Builds the lab around `contestant`; yields its processes (the kernel has none) and a scratch directory."""
    offloads = OFFLOADS[group]
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"{PREFIX}-")))
        for role in ROLES:
            stack.callback(subprocess.run, ["ip", "netns", "del", namespace(role)], stderr=subprocess.DEVNULL)
            run("ip", "netns", "add", namespace(role))
        ip("wan", "link", "add", "wan0", "type", "veth", "peer", "name", "nic0", "netns", namespace("sut"))
        ethtool("wan", "wan0", offloads.get("wan0"))
        ethtool("sut", "nic0", offloads.get("nic0"))
        ip("wan", "addr", "add", "10.77.0.1/24", "dev", "wan0")
        ip("wan", "link", "set", "wan0", "up")
        ip("sut", "link", "set", "nic0", "up")
        ip("sut", "link", "set", "lo", "up")
        yield stack.enter_context(contestant.attached(directory, offloads, bridges)), directory
