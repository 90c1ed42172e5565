"""A guest behind a NAT node, which joins a kernel bridge through a TAP of its own."""

from pathlib import Path

import process
from lab import BRIDGE, BRIDGE_ADDRESS, GUEST, Lab
from outside import interfaces
from process import check, wait_until


def taps() -> set[str]:
    return {name for name in interfaces() if name.startswith("gns3tap")}


def run(lab: Lab) -> None:
    check(taps() == {"gns3tap0-0"}, f"the NAT's TAPs are {taps()}")
    master = Path("/sys/class/net/gns3tap0-0/master").resolve().name
    check(master == BRIDGE, f"the NAT's TAP belongs to {master}")
    lab.until_guest_reaches(BRIDGE_ADDRESS)
    for direction, options in (("into", []), ("out of", ["-R"])):
        # The kernel hands its own super-frames to the bridge's TAP.
        moved = lab.iperf3(process.run, GUEST[1], *options)
        lab.say(f"TCP through NAT {direction} the guest: {moved['mbps']} Mb/s, {moved['retransmits']} retransmits")

    lab.nat_link.delete()
    wait_until("the TAP is gone", lambda: not taps())
    check(not lab.guest_reaches(BRIDGE_ADDRESS), "a ping passes a link that was deleted")
    lab.nat_link = lab.link_nat()
    check(taps() == {"gns3tap0-0"}, f"the NAT's TAPs are {taps()}")
    lab.until_guest_reaches(BRIDGE_ADDRESS)
    lab.say("NAT works, and can be linked anew")
