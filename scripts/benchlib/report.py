"""Turns the bench's runs into figures people read: Markdown, an SVG chart, the demo's table."""

from __future__ import annotations

import math
import statistics
from html import escape

TITLES = {
    "gro-in": "GRO-made frames, into the VM",
    "gro-out": "GRO on, out of the VM",
    "tso-in": "TSO frames, into the VM",
    "tso-out": "TSO frames, out of the VM",
    "off-in": "NIC offloads off, into the VM",
    "off-out": "NIC offloads off, out of the VM",
}
HOP_TITLES = {f"hop-{name}": f"{title}, through a tunnel" for name, title in TITLES.items()}
PCAP_TITLES = {f"pcap-{name}": f"{title}, through libpcap" for name, title in TITLES.items()}
# What of a run is compared, in the order in which it is looked for; and what is told beside it, under which name.
FIGURES = ("gbps", "frames_per_second", "median_us")
BESIDE = {"p99_us": "p99", "retransmits": "retransmits", "lost": "lost"}
DEMO_NAMES = {"kernel": "kernel bridge", "plain": "plain bridge", "rubridge": "rubridge"}


def gbps(value: float) -> str:
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def microseconds(value: float | None) -> str:
    return "no data" if value is None else f"{value:.0f}"


def thousands(value: float) -> str:
    return f"{value / 1000:,.0f}"


def ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}" if value < 10 else f"{value:.0f}"


def span(row: dict, form) -> str:
    return "–" if row["min"] is None else f"{form(row['min'])} to {form(row['max'])}"


def brief(figures: dict) -> str:
    """One run in a few words, for the progress line."""
    if "gbps" in figures:
        return f"{gbps(figures['gbps'])} Gb/s"
    if "frames_per_second" in figures:
        return f"{thousands(figures['frames_per_second'])} thousand frames/s, {figures['lost']} lost"
    if "median_us" in figures:
        return "no data" if figures["median_us"] is None else f"{microseconds(figures['median_us'])} us"
    return f"{figures['peak_rss_kib']} KiB, idle {figures['idle_cpu_percent']:.1f} % CPU"


def summarise(runs: list[dict]) -> list[dict]:
    """One row for each scenario and contestant; ratios are within a round, where a drifting machine cancels out."""
    groups: dict[tuple, dict[int, dict]] = {}
    for run in runs:
        groups.setdefault((run["scenario"], run["contestant"]), {})[run["round"]] = run
    rows = []
    for (scenario, contestant), rounds in groups.items():
        row = {"scenario": scenario, "contestant": contestant}
        if scenario == "resources":
            rows.append({**row, **{key: rounds[0][key] for key in ("peak_rss_kib", "idle_cpu_percent")}})
            continue
        key = next(key for key in FIGURES if key in rounds[0])
        values = [run[key] for run in rounds.values() if run[key] is not None]
        row["median"] = statistics.median(values) if values else None
        row["min"], row["max"] = min(values, default=None), max(values, default=None)
        for base in ("kernel", "plain"):
            if (scenario, base) not in groups:
                continue
            pairs = [(run[key], groups[scenario, base][turn][key]) for turn, run in rounds.items()]
            ratios = [own / other for own, other in pairs if own is not None and other]
            row[f"to_{base}"] = statistics.median(ratios) if ratios else None
        for beside, name in BESIDE.items():
            if beside in rounds[0]:
                found = [run[beside] for run in rounds.values() if run[beside] is not None]
                row[name] = statistics.median(found) if found else None
        rows.append(row)
    return rows


def _figure(unit: str, form) -> dict:
    return {unit: lambda row: form(row["median"]), "range": lambda row: span(row, form)}


# The columns of a table: their titles, and what a row has there.
TO_KERNEL = {"to kernel": lambda row: ratio(row["to_kernel"])}
TO_PLAIN = {"to plain": lambda row: ratio(row["to_plain"])}
RETRANSMITS = {"TCP retransmits": lambda row: f"{row['retransmits']:.0f}"}
P99 = {"p99 µs": lambda row: microseconds(row["p99"])}
LOST = {"lost": lambda row: f"{row['lost']:.0f}"}
THROUGHPUT = _figure("Gb/s", gbps) | TO_KERNEL | TO_PLAIN | RETRANSMITS
THROUGHPUT_TO_PLAIN = _figure("Gb/s", gbps) | TO_PLAIN | RETRANSMITS
RATE = _figure("thousand/s", thousands) | TO_PLAIN | LOST
ROUND_TRIP = _figure("median µs", microseconds) | P99 | TO_KERNEL | TO_PLAIN
ROUND_TRIP_TO_PLAIN = _figure("median µs", microseconds) | P99 | TO_PLAIN
ONE_WAY = ROUND_TRIP_TO_PLAIN | LOST
RESOURCES = {
    "peak memory (RSS)": lambda row: f"{row['peak_rss_kib'] / 1024:.1f} MiB",
    "CPU while idle": lambda row: f"{row['idle_cpu_percent']:.1f} %",
}

OFFLOADS_OFF = "Two processes, a UDP tunnel between them. All but rubridge have the NIC's offloads off: they need that."
LINUX_RAW = "All but rubridge have the NIC's offloads off, as they need them, and linux_raw in place of libpcap."
BETWEEN_TUNNELS = "64-byte frames from one tunnel to another, at most 192 of them on their way."
TRIPS = "{round_trips} round trips of 8 KiB each way over one connection; less is better."
ALONE = "One frame of 64 bytes at a time from one tunnel to another, one way; less is better."
# What is said of each scenario: a title, the columns, and a text above them.
SECTIONS = {name: (title, THROUGHPUT, "") for name, title in TITLES.items()}
SECTIONS |= {name: (title, THROUGHPUT_TO_PLAIN, OFFLOADS_OFF) for name, title in HOP_TITLES.items()}
SECTIONS |= {name: (title, THROUGHPUT_TO_PLAIN, LINUX_RAW) for name, title in PCAP_TITLES.items()}
SECTIONS |= {
    "udp-rate": ("Frames a second, between plain sockets", RATE, BETWEEN_TUNNELS),
    "udp-runs": ("Frames a second, between sockets that send and receive in runs", RATE, BETWEEN_TUNNELS),
    "latency": ("Latency, offloads on", ROUND_TRIP, TRIPS),
    "latency-off": ("Latency, NIC offloads off", ROUND_TRIP, TRIPS),
    "pcap-latency": ("Latency, through libpcap", ROUND_TRIP_TO_PLAIN, f"{TRIPS} {LINUX_RAW}"),
    "udp-latency": ("Latency, between two tunnels", ONE_WAY, ALONE),
    "resources": ("Resources", RESOURCES, ""),
}


def table(columns: dict, rows: list[dict]) -> list[str]:
    """A Markdown table: names to the left, figures to the right."""
    body = [" | ".join(["| " + row["contestant"], *(cell(row) for cell in columns.values())]) + " |" for row in rows]
    return ["", f"| | {' | '.join(columns)} |", "|---|" + "---:|" * len(columns), *body]


def markdown(machine: dict, settings: dict, rows: list[dict]) -> str:
    lines = [
        "# Benchmark results",
        "",
        f"{machine['date']}, commit {machine['commit']}, Linux {machine['kernel']}, {machine['cpu']}, "
        f"iperf3 {machine['iperf3']}. One TCP stream; rounds: {settings['rounds']}, seconds of each run: "
        f"{settings['seconds']}; the contestants take turns within each round. Figures are medians over the rounds, "
        "the range is from the lowest to the highest; the ratios are medians of the ratios within each round. "
        "`plain` is `rubridge --offload off`, one frame at a time.",
    ]
    for scenario, (title, columns, text) in SECTIONS.items():
        measured = [row for row in rows if row["scenario"] == scenario]
        if measured:
            lines += ["", f"## {title} (`{scenario}`)"]
            lines += ["", text.format(**settings)] if text else []
            lines += table(columns, measured)
    return "\n".join(lines) + "\n"


def demo(rows: list[dict]) -> str:
    """The plain-text table of `scripts/demo`."""
    figures = {(row["scenario"], row["contestant"]): gbps(row["median"]) for row in rows}
    names = dict.fromkeys(row["contestant"] for row in rows)
    lines = ["", "TCP between a NIC and a TAP, offloads on, Gb/s", ""]
    lines.append(f"{'':14}{'into the VM':>13}{'out of the VM':>15}")
    for name in names:
        into, out = figures["gro-in", name], figures["gro-out", name]
        lines.append(f"{DEMO_NAMES.get(name, name):14}{into:>13}{out:>15}")
    lines += ["", "plain bridge: rubridge --offload off, one frame at a time, frames unchanged"]
    return "\n".join(lines)


# The chart brings its own light card, so that it reads the same on a light and on a dark page.
COLOURS = ("#8c959f", "#d4a72c", "#0969da", "#8250df", "#1a7f37", "#cf222e")
LEFT, TOP, PLOT_WIDTH, PLOT_HEIGHT = 56, 76, 820, 260
CARD_WIDTH, CARD_HEIGHT = LEFT + PLOT_WIDTH + 24, TOP + PLOT_HEIGHT + 40
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#424a53}"
    ".title{font-size:16px;font-weight:600;fill:#1f2328}"
    ".value{font-size:10px}"
)


def nice_step(top: float) -> float:
    """The distance of the grid lines: 1, 2, 5 or 10 times a power of ten, such that at most six fit below `top`."""
    power = 10.0 ** math.floor(math.log10(top / 6))
    return next(power * factor for factor in (1, 2, 5, 10) if top <= 6 * power * factor)


def svg(rows: list[dict]) -> str:
    """Grouped bars of the median throughput, with a whisker from the lowest to the highest round."""
    bars = {(row["scenario"], row["contestant"]): row for row in rows if row["scenario"] in TITLES}
    scenarios = [name for name in TITLES if any(scenario == name for scenario, _ in bars)]
    contestants = list(dict.fromkeys(contestant for _, contestant in bars))
    top = max((row["max"] for row in bars.values()), default=0) or 1
    step = nice_step(top)
    scale = PLOT_HEIGHT / (top * 1.08)
    floor = TOP + PLOT_HEIGHT

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {CARD_WIDTH} {CARD_HEIGHT}" width="{CARD_WIDTH}" '
        f'height="{CARD_HEIGHT}" role="img" aria-label="TCP throughput by scenario"><style>{STYLE}</style>'
        f'<rect x=".5" y=".5" width="{CARD_WIDTH - 1}" height="{CARD_HEIGHT - 1}" rx="8" fill="white" stroke="silver"/>',
        '<text class="title" x="24" y="32">TCP throughput, one stream, Gb/s (more is better)</text>',
    ]
    for index, name in enumerate(contestants):
        x = 24 + sum(34 + 7 * len(earlier) for earlier in contestants[:index])
        parts.append(f'<rect x="{x}" y="47" width="12" height="12" rx="2" fill="{colour(index)}"/>')
        parts.append(f'<text x="{x + 18}" y="57">{escape(name)}</text>')
    for line in range(int(top * 1.08 / step) + 1):
        y = floor - line * step * scale
        parts.append(f'<path d="M{LEFT} {y:.1f}h{PLOT_WIDTH}" stroke="#d8dee4"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{line * step:g}</text>')

    group_width = PLOT_WIDTH / max(len(scenarios), 1)
    slot = min(group_width * 0.88 / max(len(contestants), 1), 44)
    for group, scenario in enumerate(scenarios):
        middle = LEFT + group_width * (group + 0.5)
        parts.append(f'<text x="{middle:.1f}" y="{floor + 22}" text-anchor="middle">{scenario}</text>')
        for index, name in enumerate(contestants):
            row = bars[scenario, name]
            x = middle + slot * (index - len(contestants) / 2)
            centre, height = x + slot / 2, row["median"] * scale
            low, high = floor - row["min"] * scale, floor - row["max"] * scale
            parts.append(
                f'<rect x="{x + 2:.1f}" y="{floor - height:.1f}" width="{slot - 4:.1f}" height="{height:.1f}" rx="2" '
                f'fill="{colour(index)}"/>'
                f'<path d="M{centre:.1f} {low:.1f}V{high:.1f}" stroke="#1f2328" stroke-opacity=".6"/>'
                f'<text class="value" x="{centre:.1f}" y="{high - 5:.1f}" text-anchor="middle">'
                f'{gbps(row["median"])}</text>'
            )
    return "\n".join([*parts, "</svg>"]) + "\n"


def colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]
