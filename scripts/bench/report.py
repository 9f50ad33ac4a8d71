"""From results to docs/benchmarks.md and its plots. Nothing is measured here, nothing decided."""

import math

COLUMNS = [  # key, head, format
    ("iops", "IOPS", "{:,.0f}"), ("transactions_per_s", "transactions a second", "{:,.0f}"), ("mib_per_s", "MiB/s", "{:,.0f}"), ("mean_us", "mean, us", "{:,.1f}"),
    ("p99_us", "p99, us", "{:,.0f}"), ("sync_p99_us", "p99 of flush, us", "{:,.0f}"), ("max_ms", "slowest, ms", "{:,.0f}"),
    ("server_us", "server CPU per op, us", "{:.2f}"), ("per_backing_write", "writes per backing write", "{:.2f}"),
    ("mbit_per_s", "Mbit/s", "{:,.0f}"), ("mb_per_s", "MB/s", "{:,.0f}"), ("best_gb_per_s", "GB/s, best", "{:,.1f}"), ("gb_per_s", "GB/s, median", "{:,.1f}"), ("cores", "cores", "{:.2f}"), ("ratio", "ratio", "{:.2f}"),
    ("saved_mb", "saved, MB", "{:,.0f}"), ("packing_s", "packing, s of CPU", "{:.2f}"), ("stall_ms", "longest stall, ms", "{:,.0f}"),
    ("recovery_s", "to full speed, s", "{:.2f}"), ("backlog_s", "backlog at 700 IOPS, s", "{:,.0f}"),
    ("seconds_to_serve", "to serving, s", "{:.2f}"), ("seconds_to_proof", "to proof, s", "{:.2f}"), ("dirty_gib", "dirty, GiB", "{:.1f}"),
    ("rss_besides_mib", "RSS besides arena, MiB", "{:.0f}"), ("wakeups_per_s", "wake-ups a second", "{:.2f}"),
    ("create_s", "creation, s", "{:.1f}"), ("restart_s", "restart, s", "{:.1f}"), ("rss_mib", "RSS, MiB", "{:.0f}"),
    ("threads", "threads", "{:.0f}"), ("others_percent", "CPU of others, %", "{:.0f}"),
]


def render(results, docs):
    from sections import SECTIONS
    lines = ["# Benchmarks", "", "Measured by `make bench` (`scripts/bench.sh`, sections and options in its head), written by it as well: do not",
             "edit. Each figure is the median of the runs; who is compared ran in turn, in one go. Rows that Forebay loses stay in. Server CPU is",
             "user and system time of the server's process with its kernel workers. *CPU of others* is what other programs of the machine took",
             "meanwhile (of all its cores): the machine was shared, with those at idle priority, so trust ratios more than figures.", ""]
    lines += ["| section | goals met |", "|---|---|"]
    present = [(name, results[name]) for name in SECTIONS if name in results]
    for name, found in present:
        judged = [row["met"] for row in found["rows"] if row["met"] is not None]
        lines.append(f"| [{found['title']}](#{anchor(found['title'])}) | {sum(judged)} of {len(judged)} |")
    for name, found in present:
        lines += ["", f"## {found['title']}", "", " ".join(SECTIONS[name][1].__doc__.split()), ""]
        for plot in found.get("plots", []):
            picture = docs / "benchmarks" / f"{plot['name']}.svg"
            picture.write_text(svg(plot))
        for row in found["rows"]:
            lines += table(row) + [""]
        for plot in found.get("plots", []):
            lines += [f"![{plot['title']}](benchmarks/{plot['name']}.svg)", ""]
        m = found["machine"]
        lines.append(f"*{found['at']}, commit {m['commit']}; {m['cpu']}, {m['memory_gib']} GiB, Linux {m['kernel']}, {m['disk']}; {m['fio']}, "
                     f"{m['nbdkit']}, {m['qemu-nbd']}; {found['times']} alternations of {found['seconds']} s; the machine was busy to "
                     f"{found['busy_percent']:.0f} %, load {found['load']:.1f} at the end.*")
    (docs / "benchmarks.md").write_text("\n".join(lines) + "\n")


def anchor(title):
    return "".join(c for c in title.lower().replace(" ", "-") if c.isalnum() or c == "-")


def table(row):
    keys = [column for column in COLUMNS if any(run.get(column[0]) for run in row["runs"].values())]
    if any("mib_per_s" in run and run["iops"] * 64 > 1024 * run["mib_per_s"] for run in row["runs"].values()):
        keys = [column for column in keys if column[0] != "mib_per_s"]  # small requests: IOPS say it
    lines = [f"**{row['name']}**", "", "| |" + "".join(f" {head} |" for _, head, _ in keys), "|---|" + "---:|" * len(keys)]
    for who, run in row["runs"].items():
        cells = [form.format(run[key]) if run.get(key) else "" for key, _, form in keys]
        lines.append(f"| {who} |" + "".join(f" {cell} |" for cell in cells))
    if row["goal"]:
        word = {True: "Met", False: "**Missed**", None: "Shown"}[row["met"]]
        lines += ["", f"{word}: {row['goal']}"]
    return lines


# --- plots ---

WIDTH, HEIGHT, LEFT, RIGHT, TOP, GAP = 860, 250, 70, 20, 34, 54


def svg(plot):
    """Completions and 99th percentile of each second, one above the other, on logarithmic scales; dashed: the plain storage."""
    panels = [("completions a second", "completions", plot["plain"]["iops"], "#0072b2", 1),
              ("p99 of the second, ms", "p99_us", plot["plain"]["p99_us"], "#d55e00", 1000)]
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {2 * (HEIGHT + GAP) + TOP}" font-family="sans-serif" font-size="12">',
             f'<rect width="100%" height="100%" fill="white"/><text x="{LEFT}" y="20" font-size="14">{escape(plot["title"])}</text>']
    for at, (title, key, plain, colour, unit) in enumerate(panels):
        values = [second[key] for second in plot["series"]]
        parts += panel(title, [v / unit if v else None for v in values], plain / unit, colour, TOP + at * (HEIGHT + GAP))
    return "\n".join(parts + ["</svg>"]) + "\n"


def panel(title, values, plain, colour, top):
    known = [v for v in values if v] + [plain]
    low, high = math.floor(math.log10(min(known))), math.ceil(math.log10(max(known)) + 1e-9)
    width = WIDTH - LEFT - RIGHT

    def y(value):
        return top + HEIGHT - (math.log10(value) - low) / max(1, high - low) * HEIGHT

    def x(second):
        return LEFT + (second + 0.5) * width / len(values)
    parts = [f'<text x="{LEFT}" y="{top + HEIGHT + 34}" fill="{colour}">{title}</text>']
    for power in range(low, high + 1):
        at = y(10 ** power)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>'
                     f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{10 ** power:,g}</text>')
    for second in range(0, len(values) + 1, 10 if len(values) <= 120 else 60):
        parts.append(f'<text x="{LEFT + second * width / len(values):.1f}" y="{top + HEIGHT + 16}" text-anchor="middle">{second} s</text>')
    parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(plain):.1f}" y2="{y(plain):.1f}" stroke="#555" stroke-dasharray="6 4"/>'
                 f'<text x="{WIDTH - RIGHT}" y="{y(plain) - 5:.1f}" text-anchor="end" fill="#555">plain storage</text>')
    points = " ".join(f"{x(i):.1f},{y(v):.1f}" for i, v in enumerate(values) if v)
    parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
    # A second without completions has no place on a logarithmic scale: it is marked on the axis.
    parts += [f'<circle cx="{x(i):.1f}" cy="{top + HEIGHT}" r="4" fill="#cc0000"/>' for i, v in enumerate(values) if not v]
    return parts


def escape(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
