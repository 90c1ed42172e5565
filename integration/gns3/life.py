"""What is left when nodes, projects and servers end."""

import nat
from lab import BRIDGE_ADDRESS, Lab, ubridges
from outside import ADDRESS, interfaces
from process import check, named, processes, wait_until


def run(lab: Lab) -> None:
    check(len(ubridges()) == 3, f"{len(ubridges())} ubridges for three nodes")
    no_trouble(lab)
    lab.leave_console()
    lab.guest.stop()
    check(lab.guest.status() == "stopped", "the guest has not stopped")
    wait_until("only the cloud's and the NAT's ubridge are left", lambda: len(ubridges()) == 2)

    no_trouble(lab)
    lab.nic_link.filter(packet_loss=[100])
    lab.project.close()
    wait_until("no ubridge is left of the project", lambda: not ubridges())
    wait_until("no interface is left of the project", lambda: not nat.taps())
    lab.say("the guest is stopped, the project closed")

    lab.project.open()
    lab.boot()
    check(not lab.guest_reaches(ADDRESS), "the link's filter was lost with the project's closing")
    lab.nic_link.clear_filters()
    lab.until_guest_reaches(ADDRESS)
    lab.until_guest_reaches(BRIDGE_ADDRESS)
    lab.say("the project is open again, the guest has started")

    no_trouble(lab)
    lab.leave_console()
    lab.server.stop()
    wait_until("no ubridge is left of the server", lambda: not ubridges())
    wait_until("no guest is left of the server", lambda: not named("qemu-system-x86"))
    # What holds the outside's namespace is the test's.
    left = {number: name for number, name in processes().items() if name != "cat"}
    check(not left, f"processes are left: {left}")
    check(interfaces() == lab.before, f"interfaces are left: {interfaces()}, before there were {lab.before}")
    complaints = lab.server.complaints()
    check(not complaints, "the server complained:\n" + "\n".join(complaints))
    lab.say("the server has ended, and left nothing")


def no_trouble(lab: Lab) -> None:
    for node, text in lab.server.ubridge_logs().items():
        check("panicked" not in text and "ERROR" not in text, f"the ubridge of node {node} is in trouble: {text}")
