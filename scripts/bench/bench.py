#!/usr/bin/python3
"""Measures Forebay beside other programs and renders docs/benchmarks.md. See scripts/bench.sh for how to call it."""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).parent))
from report import render  # noqa: E402
from sections import SECTIONS  # noqa: E402
from stand import ROOT, Stand, machine_busy_s  # noqa: E402

RESULTS = ROOT / "docs/benchmarks/results.json"


def version(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout or done.stderr).strip().split("\n")[0]


def machine(folder):
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    memory = next(int(line.split()[1]) >> 20 for line in open("/proc/meminfo") if line.startswith("MemTotal"))
    kind = version("df", "--output=fstype", str(folder.parent)) and subprocess.run(
        ["df", "--output=fstype,source", str(folder.parent)], capture_output=True, text=True, check=True).stdout.split("\n")[1]
    return {
        "cpu": f"{os.cpu_count()} x {model}", "memory_gib": memory, "kernel": platform.release(),
        "disk": " ".join(kind.split()), "fio": version("fio", "--version"), "nbdkit": version("nbdkit", "--version"),
        "qemu-nbd": version("qemu-nbd", "--version"), "commit": version("git", "-C", str(ROOT), "describe", "--always", "--dirty"),
    }


def main():
    parser = argparse.ArgumentParser(prog="scripts/bench.sh", description=__doc__)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help="what to measure (default: all): " + ", ".join(SECTIONS))
    parser.add_argument("--times", type=int, default=3, help="alternations of each row (default 3)")
    parser.add_argument("--seconds", type=int, default=5, help="length of each run (default 5)")
    parser.add_argument("--long", type=int, default=0, metavar="SECONDS", help="length of the runs that are to be sustained (throttle, flushes, hot set), such as 600")
    parser.add_argument("--quick", action="store_true", help="everything small: shows that the bench works, not how fast anything is")
    parser.add_argument("--render", action="store_true", help="only write docs/benchmarks.md anew from the results that are there")
    parser.add_argument("--must-meet", action="store_true", help="write nothing, and exit with 1 where a goal is missed")
    options = parser.parse_args()
    for name in options.sections:
        if name not in SECTIONS:
            parser.error(f"there is no section {name}; there are {', '.join(SECTIONS)}")
    if options.quick:
        options.times, options.seconds = 1, 1
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if not options.render:
        stand = Stand(os.environ.get("BENCH_DIR", "/var/tmp/forebay-bench"))
        try:
            for name in options.sections or SECTIONS:
                measure(name, stand, options, results)
        finally:
            stand.close()
    if options.must_meet:
        missed = [row["name"] for name in options.sections or SECTIONS for row in results[name]["rows"] if row["met"] is False]
        sys.exit(f"bench: missed: {'; '.join(missed)}" if missed else 0)
    if not options.quick:
        render(results, ROOT / "docs")


def measure(name, stand, options, results):
    title, section = SECTIONS[name]
    print(f"bench: {name}: {title}", flush=True)
    begin, busy = time.monotonic(), machine_busy_s()
    found = section(stand, options)
    found.update({"title": title, "machine": machine(stand.folder), "load": os.getloadavg()[0],
                  "busy_percent": (machine_busy_s() - busy) / (time.monotonic() - begin) / os.cpu_count() * 100,
                  "at": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), "times": options.times, "seconds": options.seconds})
    for row in found["rows"]:
        print(f"  {row['name']}")
        for who, run in row["runs"].items():
            print(f"    {who:<44} " + "  ".join(f"{key} {value:.4g}" for key, value in run.items()))
        if row["goal"]:
            print(f"    {'' if row['met'] is None else 'MET: ' if row['met'] else 'MISSED: '}{row['goal']}", flush=True)
    if options.must_meet:
        results[name] = found
    elif not options.quick:
        results[name] = found
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")


main()
