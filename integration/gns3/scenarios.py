#!/usr/bin/env python3
"""Drives a real gns3-server that uses the given program as its ubridge, through everything that a user does with it.

Needs what integration/gns3/guest and integration/gns3/servers make.
"""

import argparse
import signal
import subprocess
from pathlib import Path

import life
import nat
import nic
import udp
from isolate import alone
from lab import lab, ubridges
from process import background, check, wait_until


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("--server", required=True, metavar="VERSION", help="the version of gns3-server")
    parser.add_argument("--ubridge", required=True, type=Path, metavar="PATH", help="the program to test")
    arguments = parser.parse_args()
    alone()
    # One that an earlier server has left behind: a new server kills it, and finds it by its name.
    with background([arguments.ubridge, "-H", "127.0.0.1:4242"], stdout=subprocess.DEVNULL) as ghost:
        wait_until("the ghost is called ubridge", lambda: ubridges() or ghost.poll() is not None)
        check(ghost.poll() is None, f"{arguments.ubridge} -H ended with {ghost.returncode}")
        with lab(arguments.server, arguments.ubridge) as made:
            wait_until("the server has killed the ghost", lambda: ghost.poll() == -signal.SIGKILL)
            for scenario in (nic, nat, udp, life):
                scenario.run(made)


if __name__ == "__main__":
    main()
