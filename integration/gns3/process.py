"""Programs and conditions: running, starting, stopping, waiting."""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

# Seconds; long, since they only run out when something is broken, and much longer for what takes its time anyway.
PATIENCE = 120
START_PATIENCE = 300


class Failure(Exception):
    """What a test expected and did not find."""


def check(holds: bool, message: str) -> None:
    if not holds:
        raise Failure(message)


def wait_until(what: str, condition, patience: float = PATIENCE):
    """Waits until `condition` returns something true, and returns that."""
    end = time.monotonic() + patience
    while not (value := condition()):
        check(time.monotonic() < end, f"waited in vain until {what}")
        time.sleep(0.05)
    return value


def run(*command: str, timeout: float = PATIENCE) -> str:
    """Runs a program to its successful end; its standard output."""
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=timeout)
    check(done.returncode == 0, f"`{' '.join(command)}` failed: {done.stdout}{done.stderr}")
    return done.stdout


@contextlib.contextmanager
def background(command: list[str], **options):
    """A program that does not outlive the block."""
    child = subprocess.Popen(command, **{"stdin": subprocess.DEVNULL, **options})
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def processes() -> dict[int, str]:
    """The names of all processes of this namespace but this one, by their ids; what only waits to be reaped is gone."""
    found = {}
    for directory in Path("/proc").iterdir():
        if not directory.name.isdecimal() or int(directory.name) == os.getpid():
            continue
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            # "<id> (<name>) <state> ...", and the name may hold anything.
            name, _, rest = (directory / "stat").read_text().partition("(")[2].rpartition(")")
            if rest.split()[0] != "Z":
                found[int(directory.name)] = name
    return found


def named(name: str) -> list[int]:
    return [number for number, other in processes().items() if other == name]


def end_others() -> None:
    """Ends what is left in this process namespace, which holds nothing but what the test has started."""
    check(os.getpid() == 1, "this is not a process namespace of the test's own")
    for number in processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    wait_until("everything has ended", lambda: not processes())
