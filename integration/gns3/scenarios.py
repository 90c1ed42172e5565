#!/usr/bin/env python3
"""Drives a real gns3-server that uses the given program as its ubridge, through everything that a user does with it.

Needs what integration/gns3/guest and integration/gns3/servers make.
"""

import argparse
from pathlib import Path

import life
import nat
import nic
import udp
from isolate import alone
from lab import lab


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("--server", required=True, metavar="VERSION", help="the version of gns3-server")
    parser.add_argument("--ubridge", required=True, type=Path, metavar="PATH", help="the program to test")
    arguments = parser.parse_args()
    alone()
    with lab(arguments.server, arguments.ubridge) as made:
        for scenario in (nic, nat, udp, life):
            scenario.run(made)


if __name__ == "__main__":
    main()
