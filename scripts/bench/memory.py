"""Whether `forebay doctor matrix` tells what other programs measure: STREAM's loops in C, and Debian's likwid-bench and mbw."""

import json
import os
import platform
import re
import shutil
import statistics
import subprocess
from pathlib import Path

import stand as stand_of
from stand import ROOT

# The matrix and the others may be so far apart.
APART_MAX = 0.10
# Of each, for each time that is asked for.
TURNS = 3
# Each window, as long as the matrix's.
SECONDS = 0.6
# Each thread's arrays: more than caches hold, and no less than the matrix takes.
MIB = 256
# Name of the mix, of the loop in stream.c, and of that in likwid-bench. mbw has copies alone.
MIXES = {"read": ("read", "load_avx"), "one-to-one": ("copy-past", "copy_mem_avx"), "two-to-one": ("triad-past", "stream_mem_avx"),
         "write-past": ("write-past", "store_mem_avx"), "write": ("write", "store_avx")}
TITLES = {"read": "reads", "one-to-one": "copies past the caches", "two-to-one": "triads past the caches",
          "write-past": "writes past the caches", "write": "usual writes"}


def numbers(text):
    """`0-2,5` of sysfs."""
    parts = [part.split("-") for part in text.strip().split(",") if part]
    return [number for part in parts for number in range(int(part[0]), int(part[-1]) + 1)]


def cores():
    """One CPU of each core of the first node that this process may use."""
    cpus = Path("/sys/devices/system/cpu")
    node = next((path for path in sorted(Path("/sys/devices/system/node").glob("node*/cpulist")) if path.read_text().strip()), None)
    allowed = sorted(set(numbers(node.read_text())) & os.sched_getaffinity(0) if node else os.sched_getaffinity(0))
    firsts, seen = [], set()
    for cpu in allowed:
        siblings = cpus / f"cpu{cpu}/topology/thread_siblings_list"
        core = tuple(numbers(siblings.read_text())) if siblings.exists() else (cpu,)
        if core not in seen:
            seen.add(core)
            firsts.append(cpu)
    return firsts


def of_matrix(cpus):
    """Bytes a second by mix, of the first node alone."""
    command = [stand_of.BINARY, "doctor", "matrix", "--only", "bandwidth", "--force", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    cells = {}
    for cell in found["read"] + found["mixes"]:
        if cell["cpus"] == cell["memory"]:
            cells.setdefault(cell["mix"], cell)
    threads = {cell["threads"] for cell in cells.values()}
    if threads != {len(cpus)}:
        raise RuntimeError(f"the matrix used {threads} threads where this machine has {len(cpus)} cores: not the same is compared")
    return {mix: cell["bytes_per_second"] for mix, cell in cells.items()}


def of_stream(program, cpus):
    def one(loop):
        done = subprocess.run([program, loop, str(MIB), str(SECONDS), *map(str, cpus)], capture_output=True, text=True, check=True)
        return float(done.stdout)
    return {mix: one(loop) for mix, (loop, _) in MIXES.items()}


# By glibc's own switch its memory is in huge pages, as that of the matrix and stream.c is.
HUGE = {**os.environ, "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


def of_likwid(cpus):
    """Its domain of the first node begins with one CPU of each core."""
    def one(loop):
        command = ["likwid-bench", "-t", loop, "-w", f"M0:{(MIB << 20) * len(cpus) // 10**6}MB:{len(cpus)}"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=HUGE)
        return float(re.search(r"^MByte/s:\s+([0-9.]+)", done.stdout, re.MULTILINE).group(1)) * 1e6
    return {mix: one(loop) for mix, (_, loop) in MIXES.items()}


def of_mbw(cpus):
    """One on each core, at the same time. It counts what it copies once, and a copy reads and writes. glibc's copies of this size go
    past the caches, but not as fast as loops do that go straight on: it takes four pages at a time. So it is shown, and is no goal."""
    command = ["mbw", "-q", "-t0", "-n", "40", str(MIB)]
    running = [subprocess.Popen(["taskset", "-c", str(cpu), *command], stdout=subprocess.PIPE, text=True, env=HUGE) for cpu in cpus]
    total = 0.0
    for process in running:
        text = process.communicate()[0]
        average = re.search(r"^AVG\s+Method: MEMCPY.*Copy: ([0-9.]+) MiB/s", text, re.MULTILINE)
        if process.returncode or not average:
            raise RuntimeError(f"mbw ended with {process.returncode} and said {text!r}")
        total += float(average.group(1)) * (1 << 20) * 2
    return {"one-to-one": total}


def matrix(stand, options):
    """Bytes a second of all cores of one node on its own memory, one thread a core, as `forebay doctor matrix` tells them in one run, and
    as other programs do on the same cores: STREAM's loops in C with gcc (`scripts/bench/stream.c`), Debian's likwid-bench, which has them in
    assembler, and, shown only, Debian's mbw, one on each core, by glibc's memcpy. All count what the program reads and writes. In turn, three times as often as elsewhere, because each takes seconds and
    what a virtual machine's neighbours take changes by minutes: compared is what two have measured one right after the other, the median
    of these ratios. Goal: within 10 %."""
    if platform.machine() != "x86_64":
        print("  not measured: stream.c is written for x86-64")
        return {"rows": []}
    if absent := [tool for tool in ("likwid-bench", "mbw") if not shutil.which(tool)]:
        raise RuntimeError(f"there is no {', no '.join(absent)} (scripts/setup.sh --gate)")
    program = stand.folder / "stream"
    flags = ["-O3", "-mavx2", "-pthread", "-fno-tree-loop-distribute-patterns"]
    subprocess.run(["cc", *flags, "-o", program, ROOT / "scripts/bench/stream.c"], check=True)
    cpus = cores()
    measures = {"forebay doctor matrix": lambda: of_matrix(cpus), "stream.c": lambda: of_stream(program, cpus),
                "likwid-bench": lambda: of_likwid(cpus), "mbw": lambda: of_mbw(cpus)}
    runs = {who: [] for who in measures}
    for _ in range(TURNS * options.times):
        for who, measure in measures.items():
            runs[who].append(measure())
    rows = []
    for mix, title in TITLES.items():
        of_mix = {who: [run[mix] / 1e9 for run in all_runs] for who, all_runs in runs.items() if mix in all_runs[0]}
        ours = of_mix["forebay doctor matrix"]
        ratios = {who: sorted(mine / its for mine, its in zip(ours, theirs)) for who, theirs in of_mix.items() if theirs is not ours}
        met = all(abs(statistics.median(of) - 1) <= APART_MAX for who, of in ratios.items() if who != "mbw")
        said = (f"**{statistics.median(of):.2f}** of {who} (middle half {of[len(of) // 4]:.2f} to {of[-1 - len(of) // 4]:.2f})" for who, of in ratios.items())
        goal = "within 10 % of the others: " + ", ".join(said)
        shown = {who: {"best_gb_per_s": max(rates), "gb_per_s": statistics.median(rates)} for who, rates in of_mix.items()}
        rows.append({"name": f"{title}, {len(cpus)} threads", "runs": shown, "goal": goal, "met": met})
    return {"rows": rows}
