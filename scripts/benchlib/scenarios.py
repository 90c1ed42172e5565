"""The scenarios: the path that frames take, the NIC's offloads, and what is measured."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from .lab import DIRECT, FAR_ENDS, PCAP, TUNNELS, TWO_HOPS, VM_ADDRESS, inside, process, run, wait_until

ROUND_TRIPS = 2000
IDLE_SECONDS = 5
# Makes the frames between two tunnels: `cargo build --release --example udp_traffic`.
UDP_TRAFFIC = Path(__file__).resolve().parents[2] / "target/release/examples/udp_traffic"


def converse(directory: Path, server: list[str], client: list[str], seconds: float) -> dict | None:
    """Runs a client against a server in the VM; the client's JSON, or None if it got nowhere in time."""
    log = directory / "server.log"
    with process(inside("vm", *server), log) as child:
        wait_until(lambda: "listening" in log.read_text(), child, log, server[0])
        try:
            command = inside("wan", *client)
            done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=seconds)
            return json.loads(done.stdout) if done.returncode == 0 else None
        except subprocess.TimeoutExpired:
            return None


def throughput(directory: Path, direction: str, seconds: int) -> dict:
    """One TCP stream into the VM, or out of it."""
    client = ["iperf3", "-c", VM_ADDRESS, "-J", "-t", str(seconds), "-O", "1", "--connect-timeout", "3000"]
    if direction == "out":
        client.append("-R")
    said = converse(directory, ["iperf3", "-s", "-1", "--forceflush"], client, seconds + 10)
    if said is None or "error" in said:  # iperf3 may call a test that broke off a success, and still name the error
        return {"gbps": 0.0, "retransmits": 0}
    end = said["end"]
    return {"gbps": end["sum_received"]["bits_per_second"] / 1e9, "retransmits": end["sum_sent"]["retransmits"]}


def latency(directory: Path) -> dict:
    """8 KiB there and back over one TCP connection."""
    script = [sys.executable, "-B", str(Path(__file__).with_name("pingpong.py"))]
    said = converse(directory, [*script, "serve"], [*script, "ask", VM_ADDRESS, str(ROUND_TRIPS)], 15)
    return said or {"median_us": None, "p99_us": None}


def resources(directory: Path, children: list[subprocess.Popen], seconds: int) -> dict:
    """Memory at its highest under load, and the processor's time taken while no traffic passes."""
    [child] = children
    for direction in ("in", "out"):
        throughput(directory, direction, seconds)
    proc = Path("/proc", str(child.pid))
    peak = int(re.search(r"VmHWM:\s+(\d+) kB", (proc / "status").read_text())[1])

    def ticks() -> int:
        # The name, field 2, may hold spaces; utime and stime are fields 14 and 15.
        return sum(map(int, (proc / "stat").read_text().rpartition(")")[2].split()[11:13]))

    time.sleep(1)  # let the connections' last packets pass
    before = ticks()
    time.sleep(IDLE_SECONDS)
    used = (ticks() - before) / os.sysconf("SC_CLK_TCK")
    return {"peak_rss_kib": peak, "idle_cpu_percent": 100 * used / IDLE_SECONDS}


def udp_traffic(mode: str, seconds: int) -> dict:
    """64-byte frames from the far end of one tunnel to that of the other."""
    return json.loads(run(*inside("sut", str(UDP_TRAFFIC), mode, str(seconds), *FAR_ENDS)))


@dataclass(frozen=True)
class Scenario:
    """What is measured of contestants that run `bridges`, by `measure(directory, the processes, seconds)`."""

    bridges: list
    offloads: str
    measure: Callable[[Path, list[subprocess.Popen], int], dict]
    once_of: str | None = None  # of this contestant alone, in one round


def _throughput(bridges: list, offloads: str, direction: str) -> Scenario:
    return Scenario(bridges, offloads, lambda directory, _, seconds: throughput(directory, direction, seconds))


def _udp(mode: str) -> Scenario:
    return Scenario(TUNNELS, "tso", lambda _directory, _children, seconds: udp_traffic(mode, seconds))


SCENARIOS = {
    f"{prefix}{offloads}-{direction}": _throughput(bridges, offloads, direction)
    for prefix, bridges in (("", DIRECT), ("hop-", TWO_HOPS), ("pcap-", PCAP))
    for offloads in ("gro", "tso", "off")
    for direction in ("in", "out")
}
SCENARIOS |= {
    "latency": Scenario(DIRECT, "tso", lambda directory, *_: latency(directory)),
    "latency-off": Scenario(DIRECT, "off", lambda directory, *_: latency(directory)),
    "pcap-latency": Scenario(PCAP, "tso", lambda directory, *_: latency(directory)),
    "udp-rate": _udp("rate"),
    "udp-runs": _udp("runs"),
    "udp-latency": _udp("latency"),
    "resources": Scenario(DIRECT, "tso", resources, once_of="rubridge"),
}
