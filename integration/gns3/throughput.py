#!/usr/bin/env python3
"""Measures TCP between the outside and a QEMU guest that a real gns3-server has linked to a NIC; prints JSON.

The outside sends single segments, as a wire would bring them, and with `--gro on` the NIC merges them. With
`--gro off` every offload of both ends is off. A program that cannot cope with merged frames is compared with the
second, one that can with the first.
"""

import argparse
import json
import sys
from pathlib import Path

from isolate import alone
from lab import GUEST, lab
from outside import ADDRESS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("--server", default="2.2.61", metavar="VERSION", help="of gns3-server (default 2.2.61)")
    parser.add_argument("--ubridge", required=True, type=Path, metavar="PATH", help="the program to measure")
    parser.add_argument("--gro", choices=("on", "off"), default="on", help="what the NIC does (default on)")
    parser.add_argument("--seconds", type=int, default=5, metavar="N", help="of each transfer (default 5)")
    arguments = parser.parse_args()
    alone()
    results = {"server": arguments.server, "ubridge": str(arguments.ubridge), "gro": arguments.gro}
    with lab(arguments.server, arguments.ubridge, sys.stderr) as made:
        made.outside.wire(gro=arguments.gro == "on")
        made.until_guest_reaches(ADDRESS)
        for name, options in (("into_guest", []), ("out_of_guest", ["-R"])):
            # The first second is left out: it is the slow start's.
            options = [*options, "-O", "1"]
            results[name] = made.iperf3(made.outside.run, GUEST[0], *options, seconds=arguments.seconds)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
