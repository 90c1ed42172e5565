"""Runs the program again where it is alone: in namespaces of its own for networks, processes and mounts.

With the last process of a process namespace all others end, so nothing that a test started can outlive it. And what
gns3-server looks for by name (interfaces below /sys, processes called ubridge) is the test's, not the machine's.
"""

import os
import subprocess
import sys

MARK = "RUBRIDGE_TEST_IS_ALONE"
UNSHARE = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]


def alone() -> None:
    """Returns in the isolated process only."""
    if MARK not in os.environ:
        if os.geteuid() != 0:
            sys.exit("network namespaces need root")
        command = [*UNSHARE, sys.executable, "-B", *sys.argv]
        os.execvpe("unshare", command, {**os.environ, MARK: "yes"})
    del os.environ[MARK]
    # The mounted /sys still shows the interfaces of the namespace that it was mounted in.
    subprocess.run(["mount", "-t", "sysfs", "sysfs", "/sys"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
