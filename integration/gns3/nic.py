"""A guest behind a Cloud that uses a NIC: traffic, filters, suspending, capturing, linking anew."""

import process
from lab import GUEST, Lab
from outside import ADDRESS, NIC
from pcap import frames
from process import check, wait_until


def run(lab: Lab) -> None:
    lab.until_guest_reaches(ADDRESS)
    wait_until("the outside reaches the guest", lambda: lab.outside.reaches(GUEST[0]))
    lab.say("pings pass both ways")
    transfers(lab)
    filters(lab)
    suspending(lab)
    capturing(lab)
    linking_anew(lab)
    trouble(lab)


def transfers(lab: Lab) -> None:
    for direction, options in (("into", []), ("out of", ["-R"])):
        moved = lab.iperf3(lab.outside.run, GUEST[0], *options)
        lab.say(f"TCP {direction} the guest: {moved['mbps']} Mb/s, {moved['retransmits']} retransmits")
    lab.check_stream(lab.outside.run, GUEST[0], 4 << 20)
    lab.say("TCP changes no byte")


def filters(lab: Lab) -> None:
    link = lab.nic_link
    link.filter(delay=[100, 0])
    # Each way is delayed.
    wait_until("pings are delayed", lambda: lab.fastest_ping(ADDRESS) >= 200)
    link.filter(delay=[10, 5])
    wait_until("the delay is shorter", lambda: lab.fastest_ping(ADDRESS) < 200)

    link.filter(packet_loss=[100])
    check(not lab.guest_reaches(ADDRESS), "a ping passes a filter that drops every packet")
    link.clear_filters()
    lab.until_guest_reaches(ADDRESS)
    link.filter(corrupt=[100])
    check(not lab.guest_reaches(ADDRESS), "a ping survives a filter that damages every packet")

    link.filter(bpf=["tcp port 9\nicmp"])  # two filters, one a line
    check(not lab.guest_reaches(ADDRESS), "a ping passes a filter for ICMP")
    lab.check_stream(lab.outside.run, GUEST[0], 64 << 10)
    link.filter(bpf=["tcp and and"])
    wait_until("the server warns of the expression", lambda: lab.server.logged("due to syntax error"))
    lab.until_guest_reaches(ADDRESS)
    link.clear_filters()
    lab.until_guest_reaches(ADDRESS)
    lab.say("filters work, and can be changed and cleared")


def suspending(lab: Lab) -> None:
    lab.nic_link.suspend(True)
    check(not lab.guest_reaches(ADDRESS), "a ping passes a suspended link")
    check(not lab.outside.reaches(GUEST[0]), "a ping passes a suspended link inwards")
    lab.nic_link.suspend(False)
    lab.until_guest_reaches(ADDRESS)
    lab.say("the link can be suspended and resumed")


def capturing(lab: Lab) -> None:
    path = lab.nic_link.start_capture()
    check(path.stat().st_size >= 24, "the capture's header is not written at its start")
    pattern = b"\xc5" * 32

    def pinged() -> list[bytes]:
        return [frame for frame in frames(path) if frame[12:14] == b"\x08\x00" and pattern in frame]

    for _ in range(2):
        before = len(pinged())
        lab.console.succeed(f"ping -c 2 -i 0.2 -W 10 -p c5 {ADDRESS}")
        # Two requests, two replies, and the capture is still running.
        wait_until("the pings are in the capture", lambda: len(pinged()) == before + 4)
    check(all(98 == len(frame) for frame in pinged()), "the captured pings are not of the right size")

    lab.nic_link.stop_capture()
    lab.console.succeed(f"ping -c 1 -W 10 -p c5 {ADDRESS}")
    check(len(pinged()) == 8, "the capture goes on after its stop")
    lab.nic_link.start_capture()
    lab.console.succeed(f"ping -c 1 -W 10 -p c5 {ADDRESS}")
    wait_until("the new capture has started a new file", lambda: len(pinged()) == 2)
    lab.say("the link can be captured")


def linking_anew(lab: Lab) -> None:
    # With its capture still running.
    lab.nic_link.delete()
    check(not lab.guest_reaches(ADDRESS), "a ping passes a link that was deleted")
    lab.nic_link = lab.link_nic(filters_at_guest=True)
    lab.until_guest_reaches(ADDRESS)
    # The filters are those of the guest's own bridge now, no longer of the cloud's.
    lab.nic_link.filter(packet_loss=[100])
    check(not lab.guest_reaches(ADDRESS), "a ping passes the guest's filter")
    lab.nic_link.clear_filters()
    lab.until_guest_reaches(ADDRESS)
    lab.say("the link can be deleted and made anew")


def trouble(lab: Lab) -> None:
    process.run("ip", "link", "set", NIC, "down")
    check(not lab.guest_reaches(ADDRESS), "a ping passes a NIC that is down")
    process.run("ip", "link", "set", NIC, "up")
    lab.until_guest_reaches(ADDRESS)
    lab.say("the NIC can go down and come back")
