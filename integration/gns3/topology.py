"""What a server is told to build: a project, its nodes and links."""

from pathlib import Path

from process import check
from server import Server

QEMU = "/usr/bin/qemu-system-x86_64"
DROPS_NOTHING = "less 1"


class Project:
    def __init__(self, server: Server, name: str):
        self.server = server
        self.id = server.request("POST", "/projects", {"name": name})["project_id"]
        self.path = f"/projects/{self.id}"

    def node(self, name: str, kind: str, properties: dict | None = None, **settings) -> "Node":
        settings = {"name": name, "node_type": kind, "compute_id": "local", **settings}
        if properties:
            settings["properties"] = properties
        return Node(self, self.server.request("POST", f"{self.path}/nodes", settings)["node_id"])

    def cloud(self, name: str, *ports: dict) -> "Node":
        mapping = [{"port_number": number, **port} for number, port in enumerate(ports)]
        return self.node(name, "cloud", {"ports_mapping": mapping})

    def guest(self, addresses: list[str]) -> "Node":
        """A QEMU VM with one adapter for each address."""
        check(Path(QEMU).exists(), f"no {QEMU}: install the package qemu-system-x86, or run scripts/test")
        # Without no_timer_check an emulated machine that gets too little of a busy processor may fail to start.
        words = ["console=ttyS0", "quiet", "panic=-1", "no_timer_check"]
        words += [f"guest.eth{number}={address}" for number, address in enumerate(addresses)]
        properties = {
            "qemu_path": QEMU,
            "platform": "x86_64",
            "kernel_image": "kernel",
            "initrd": "initrd",
            "kernel_command_line": " ".join(words),
            "adapter_type": "virtio-net-pci",
            "adapters": len(addresses),
            "ram": 256,
            "process_priority": "normal",  # by default it gives way to every other process
            # Else QEMU would unplug the adapter of a suspended link, and hide what ubridge does to its frames.
            "replicate_network_connection_state": False,
            "options": "-machine accel=tcg -no-reboot",
        }
        return self.node("guest", "qemu", properties, console_type="telnet")

    def link(self, first: tuple, second: tuple) -> "Link":
        """Links two ports, each (node, adapter, port). The filters of a link are at its first node."""
        ends = [
            {"node_id": node.id, "adapter_number": adapter, "port_number": port}
            for node, adapter, port in (first, second)
        ]
        return Link(self, self.server.request("POST", f"{self.path}/links", {"nodes": ends})["link_id"])

    def close(self) -> None:
        self.server.request("POST", f"{self.path}/close", {})

    def open(self) -> None:
        self.server.request("POST", f"{self.path}/open", {})


class Node:
    def __init__(self, project: Project, number: str):
        self.server, self.id = project.server, number
        self.path = f"{project.path}/nodes/{number}"

    def console(self) -> int:
        return self.server.request("GET", self.path)["console"]

    def status(self) -> str:
        return self.server.request("GET", self.path)["status"]

    def start(self) -> None:
        self.server.request("POST", f"{self.path}/start", {})

    def stop(self) -> None:
        self.server.request("POST", f"{self.path}/stop", {})


class Link:
    def __init__(self, project: Project, number: str):
        self.server = project.server
        self.path = f"{project.path}/links/{number}"

    def filter(self, **filters: list) -> None:
        """Puts these filters in the place of those before."""
        self.server.request("PUT", self.path, {"filters": filters})

    def clear_filters(self) -> None:
        if self.server.api == "v3":
            # 3.0 does not pass on that there are none any more, neither here nor when a link is resumed.
            self.filter(bpf=[DROPS_NOTHING])
        else:
            self.filter()

    def suspend(self, suspended: bool) -> None:
        self.server.request("PUT", self.path, {"suspend": suspended})

    def start_capture(self) -> Path:
        action = "capture/start" if self.server.api == "v3" else "start_capture"
        settings = {"capture_file_name": "link.pcap", "data_link_type": "DLT_EN10MB"}
        self.server.request("POST", f"{self.path}/{action}", settings)
        return Path(self.server.request("GET", self.path)["capture_file_path"])

    def stop_capture(self) -> None:
        action = "capture/stop" if self.server.api == "v3" else "stop_capture"
        self.server.request("POST", f"{self.path}/{action}", {})

    def delete(self) -> None:
        self.server.request("DELETE", self.path)
