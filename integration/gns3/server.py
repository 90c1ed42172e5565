"""A gns3-server of a given version: its configuration, its life, and its REST API."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from process import PATIENCE, START_PATIENCE, Failure, check, wait_until

ROOT = Path(__file__).resolve().parent.parent.parent
BUILT = ROOT / "target/gns3"
HOST, PORT = "127.0.0.1", 3080
USER, PASSWORD = "admin", "secret"

CONFIG = """\
[Server]
host = {host}
port = {port}
ubridge_path = {ubridge}
images_path = {home}/images
projects_path = {home}/projects
appliances_path = {home}/appliances
symbols_path = {home}/symbols
configs_path = {home}/configs
resources_path = {home}/resources
secrets_dir = {home}
report_errors = False
auto_discover_images = False
install_builtin_appliances = False

[Controller]
default_admin_username = {user}
default_admin_password = {password}

[Qemu]
enable_hardware_acceleration = False
require_hardware_acceleration = False
"""


def built(name: str, script: str) -> Path:
    path = BUILT / name
    check(path.exists(), f"{path} is missing: run integration/gns3/{script}, or scripts/test")
    return path


class Server:
    """A running gns3-server. Its files are below `home`."""

    def __init__(self, version: str, ubridge: Path, home: Path):
        built(f"server-{version}/installed", "servers")
        self.version, self.home = version, home
        self.api = "v3" if version.startswith("3.") else "v2"
        self.program = BUILT / f"server-{version}/bin/gns3server"
        self.log = home / "server.log"
        self.token = None
        for name in ("images/QEMU", "projects", "appliances", "symbols", "configs", "resources", "tmp"):
            (home / name).mkdir(parents=True)
        for name in ("kernel", "initrd"):
            shutil.copy(built(name, "guest"), home / "images/QEMU" / name)
        # gns3-server knows its helpers by the name ubridge.
        shutil.copy(ubridge, home / "ubridge")
        values = {"host": HOST, "port": PORT, "ubridge": home / "ubridge", "home": home}
        (home / "config").write_text(CONFIG.format(**values, user=USER, password=PASSWORD))
        self.child = self._start()

    def _start(self) -> subprocess.Popen:
        environment = {
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "PATH": os.environ["PATH"],
            "TMPDIR": str(self.home / "tmp"),
        }
        # With a file for its process id it kills what an earlier run left behind.
        command = [self.program, "--config", self.home / "config", "--pid", self.home / "pid"]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                command, cwd=self.home, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def ready(self) -> None:
        """Waits until it answers, and logs in."""

        def answers() -> bool:
            check(self.child.poll() is None, f"the server ended with {self.child.returncode}")
            with contextlib.suppress(OSError):
                return "version" in self.request("GET", "/version")

        wait_until("the server answers", answers, START_PATIENCE)
        if self.api == "v3":
            login = {"username": USER, "password": PASSWORD}
            self.token = self.request("POST", "/access/users/authenticate", login)["access_token"]

    def request(self, method: str, path: str, data: dict | None = None):
        """The decoded answer of the REST API, or a Failure that says what it refused."""
        headers = {"Content-Type": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        body = None if data is None else json.dumps(data).encode()
        url = f"http://{HOST}:{PORT}/{self.api}{path}"
        request = urllib.request.Request(url, body, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as response:
                answer = response.read()
        except urllib.error.HTTPError as error:
            raise Failure(f"{method} {path}: {error.code} {error.read().decode()}") from None
        return json.loads(answer) if answer else None

    def logged(self, text: str) -> bool:
        return text in self.log.read_text(errors="replace")

    def complaints(self) -> list[str]:
        """The lines of the log that tell of an error."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [line for line in lines if re.search(r"\b(ERROR|CRITICAL)\b|Traceback", line)]

    def ubridge_logs(self) -> dict[str, str]:
        """What the running ubridges have said, by their nodes' directories."""
        found = {}
        for path in self.home.glob("projects/**/ubridge.log"):
            with contextlib.suppress(FileNotFoundError):
                found[path.parent.name] = path.read_text(errors="replace")
        return found

    def stop(self) -> None:
        """Ends it as a service manager would."""
        self.child.send_signal(signal.SIGTERM)
        wait_until("the server has ended", lambda: self.child.poll() is not None)
