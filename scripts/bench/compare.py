#!/usr/bin/python3
"""Two builds of the daemon in turn: what CPU time each spends on an operation of 4 KiB, how long all but the slowest hundredth of reads
wait among writes to the same blocks, and how much more the second takes of both.

Both serve a volume of their own all the time, and fio loads one after the other, so that the machine's mood meets both. A pair
of neighbouring runs gives one ratio; shown is the median of the ratios, and between what the middle half of them lies.
The backing is held meanwhile, so that nothing is destaged: only the way of a request is compared.
"""

import argparse
import os
import statistics
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).parent))
import stand as stand_of  # noqa: E402
from sections import flash_volume, memory_volume  # noqa: E402
from stand import GIB, Stand, fio  # noqa: E402

VOLUMES = {"memory": memory_volume, "flash": flash_volume}


def cpu_ns(pid):
    """CPU time of a process in all its threads, to the nanosecond."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads)


def spent_ns(server, rw, depth, seconds):
    """On one operation; and operations in a second."""
    before = cpu_ns(server.pid)
    run = fio(server, rw, seconds, depth)
    return (cpu_ns(server.pid) - before) / run["operations"], run["iops"]


def waited_us(server, depth, seconds):
    """Of reads among writes to the same blocks, the 99th percentile; and operations in a second."""
    run = fio(server, "randrw", seconds, depth, size="16M", extra=["--rwmixread=70"])
    return run["p99_us"], run["iops"]


def in_turn(name, unit, servers, times, measure):
    """Measures both again and again, and prints what came of it."""
    pairs = []
    for turn in range(times):
        order = (0, 1) if turn % 2 == 0 else (1, 0)
        found = {at: measure(servers[at]) for at in order}
        pairs.append((found[0], found[1]))
    low, middle, high = statistics.quantiles(sorted(new[0] / old[0] for old, new in pairs), n=4)
    old, new = (statistics.median(pair[at][0] for pair in pairs) for at in (0, 1))
    old_iops, new_iops = (statistics.median(pair[at][1] for pair in pairs) for at in (0, 1))
    print(f"{name}: {old:7.0f} {unit}, then {new:7.0f} {unit}: {(middle - 1) * 100:+5.1f} % "
          f"({(low - 1) * 100:+.1f} to {(high - 1) * 100:+.1f}); IOPS {old_iops:.0f}, then {new_iops:.0f}", flush=True)


def compare(stand, binaries, tier, options):
    servers = []
    for at, binary in enumerate(binaries):
        stand_of.BINARY = Path(binary)
        image = stand.image(f"{tier}-{at}.img", GIB)
        server = stand.forebay([VOLUMES[tier](image)])
        server.call("drain", server.export, "--hold", "12h")
        fio(server, "write", block="1M")
        servers.append(server)
    for rw in ("randwrite", "randread"):
        for depth in (1, 32):
            for server in servers:
                spent_ns(server, "randwrite", 32, 1)
            in_turn(f"{tier:6} {rw:9} depth {depth:2}", "ns", servers, options.times,
                    lambda server: spent_ns(server, rw, depth, options.seconds))
    for depth in (8, 32):
        in_turn(f"{tier:6} reads among writes depth {depth:2}, p99", "us", servers, options.times,
                lambda server: waited_us(server, depth, options.seconds))
    stand.release(*servers)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", help="the daemon's binary to compare with")
    parser.add_argument("new", help="the one that is compared")
    parser.add_argument("--times", type=int, default=8, help="pairs of runs of each row (default 8)")
    parser.add_argument("--seconds", type=int, default=3, help="length of each run (default 3)")
    parser.add_argument("--tier", choices=VOLUMES, action="append", help="only this tier")
    options = parser.parse_args()
    if options.times < 2:
        parser.error("a spread needs two pairs at least")
    stand = Stand(os.environ.get("BENCH_DIR", "/var/tmp/forebay-bench"))
    try:
        for tier in options.tier or VOLUMES:
            compare(stand, (options.old, options.new), tier, options)
    finally:
        stand.close()


main()
