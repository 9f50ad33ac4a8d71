"""What is measured: one function for each section of docs/benchmarks.md. Each gives what the report shows.

Rules that all of them keep:
- who is compared runs in turn, in one go, at least three times over, and the median counts;
- both sides are warm: the region was written once, wholly, and backing files are not sparse;
- a row that Forebay loses stays.
"""

import contextlib
import json
import os
import random
import signal
import sqlite3
import statistics
import subprocess
import time
from pathlib import Path

from memory import matrix
from replicas import compression, links, replica, takeover
from stand import (BINARY, EXAMPLES, GIB, MIB, alternate, cpu_s, file_system, fio, first_read, medians, nbdfuse, no_file_systems,
                   per_second, wait_until)

SLOW = "slow:iops=700,latency=8ms:"


def row(name, runs, goal="", met=None):
    """One line of a table: a name, figures by contender, what was aimed at, and whether it was reached."""
    return {"name": name, "runs": runs, "goal": goal, "met": met}


def memory_volume(backing, tier_size="3G", **more):
    return {"name": "v", "backing": str(backing), "tier": "memory", "volatile": True, "tier_size": tier_size, **more}


def flash_volume(backing, tier_size="3G", **more):
    return {"name": "v", "backing": str(backing), "tier": "flash", "tier_size": tier_size, **more}


def warm(*targets, size="1G"):
    for target in targets:
        fio(target, "write", block="1m", depth=8, size=size)


def drained(server, volume=None, timeout_s=600):
    wait_until("everything to be destaged", lambda: server.show(volume)["dirty"]["bytes"] == 0, timeout_s, 0.2)


# --- memory tier against other servers ---

def servers(stand):
    """The contenders of the rows without slow storage, warm, and a way to load one of them."""
    image = {name: stand.image(f"{name}.img", GIB) for name in ("held", "destaging", "qemu", "cache")}
    held = stand.forebay([memory_volume(image["held"])])
    held.call("drain", "v", "--hold", "24h")
    destaging = stand.forebay([memory_volume(image["destaging"])])
    contenders = {
        "Forebay, held": held,
        "Forebay, destaging": destaging,
        "batched null server": stand.null(GIB),
        "nbdkit memory": stand.nbdkit("memory", "1G"),
        "qemu-nbd --cache=writeback": stand.qemu_nbd(image["qemu"]),
        "nbdkit --filter=cache": stand.nbdkit("--filter=cache", "file", image["cache"], "cache=writeback",
                                              "cache-min-block-size=4K"),
    }
    warm(*contenders.values())
    drained(destaging)

    def load(server, *how):
        found = fio(server, *how)
        if server is destaging:
            drained(server)  # not at the expense of whoever is next
        return found
    return contenders, load


def front(stand, options):
    """4 KiB at random, queue depth 32 and 1, by fio's NBD engine on a unix socket, memory tier.

    Forebay is measured twice: *held*, where nothing is destaged (`volume drain --hold`), so that the serving itself is seen; and
    *destaging*, where writes go on to a file on this machine's disk at the same time, on the same two cores. The batched null server is
    Forebay's own NBD front end over plain memory: what is left when log and tier are taken away.

    Half of nbdkit's CPU for a write is out of reach where client and server run on two cores at once, as on a quiet machine of two: a
    server that receives into one buffer and answers, and does nothing else, took 2.7 us of each write there, nbdkit memory 4.5 (pinned,
    fio's client; without a rest of 20 us between its receipts even 4.9; 40 and 60 us gained no more). 62 % of Forebay's own is the
    kernel's, mostly the receipt of what another core has just filled: two socket buffers for each request of this client. Where both
    share a core, all are cheaper. A busy rest of 10 us between small rounds was built and measured: at depth 32 it saved 16 to 24 % of a
    read's CPU and 3 to 9 % of a write's, and at depth 8 it cost 10 to 19 % of the IOPS (medians of three, on a busy machine); it was
    left out."""
    contenders, load = servers(stand)
    rows = []
    for name, rw, depth in [("4 KiB random write, depth 32", "randwrite", 32), ("4 KiB random read, depth 32", "randread", 32),
                            ("4 KiB random write, depth 1", "randwrite", 1), ("4 KiB random read, depth 1", "randread", 1)]:
        def measure(server, rw=rw, depth=depth):
            return lambda: load(server, rw, options.seconds, depth)
        runs = alternate({who: measure(server) for who, server in contenders.items()}, options.times)
        ours, null, nbdkit = runs["Forebay, held"], runs["batched null server"], runs["nbdkit memory"]
        if depth == 32:
            met = ours["iops"] >= 0.9 * null["iops"] and ours["server_us"] <= 0.5 * nbdkit["server_us"]
            goal = (f"IOPS at least 0.9 of the null server: **{ours['iops'] / null['iops']:.2f}**; server CPU at most half of "
                    f"nbdkit memory's: **{ours['server_us'] / nbdkit['server_us']:.2f}**")
        else:
            met = ours["mean_us"] <= nbdkit["mean_us"]
            goal = f"latency not above nbdkit memory's: **{ours['mean_us'] / nbdkit['mean_us']:.2f}**"
        rows.append(row(name, runs, goal, met))
    stand.release(*contenders.values())
    return {"rows": rows}


def sequential(stand, options):
    """512 KiB one after the other, the same servers. nbdkit's `null` plugin neither keeps nor makes a byte: it receives into memory that
    stays in the cache, and sends from there. Goal: 0.8 of it. What a server that keeps the bytes must do besides, for 512 KiB on this
    machine: 45 us for usual copies into cold memory or 26 us past the cache, 13 us for the checksum while the bytes are hot or 26 to
    40 us after that."""
    contenders, load = servers(stand)
    contenders["nbdkit null"] = stand.nbdkit("null", "1G")
    rows = []
    for name, rw in [("512 KiB sequential write, depth 4", "write"), ("512 KiB sequential read, depth 4", "read")]:
        def measure(server, rw=rw):
            return lambda: load(server, rw, options.seconds, 4, "512k")
        runs = alternate({who: measure(server) for who, server in contenders.items()}, options.times)
        part = runs["Forebay, held"]["mib_per_s"] / runs["nbdkit null"]["mib_per_s"]
        rows.append(row(name, runs, f"at least 0.8 of nbdkit null: **{part:.2f}**", part >= 0.8))
    stand.release(*contenders.values())
    return {"rows": rows}


# --- the physical limit ---

def limit(stand, options):
    """`forebay bench --limit`: one thread that receives in batches, checksums and answers, and does nothing else. Beside it a held volume
    with a memory tier, loaded by the same client program. Goal: at most 1.5 times its CPU per operation at depth 32."""
    volume = stand.forebay([memory_volume(stand.image("held.img", GIB))])
    warm(volume)

    def of_volume(read_percent, depth):
        # The client ends with a flush, after which nothing of the log is superseded any more: each run begins with an empty one.
        subprocess.run([BINARY, "volume", "--api", volume.api, "release", "v"], capture_output=True, check=False)
        volume.call("drain", "v", "--hold", "24h")
        if read_percent:
            warm(volume)
        before = volume.cpu_s()
        done = subprocess.run([EXAMPLES / "nbd-load", "run", f"unix:{volume.socket}", "v", "--depth", str(depth), "--read",
                               str(read_percent), "--seconds", str(options.seconds)], capture_output=True, text=True, check=True)
        operations, rest = done.stdout.split(" operations", 1)
        rate = float(rest.split("), ", 1)[1].split("/s", 1)[0])
        return {"iops": rate, "server_us": (volume.cpu_s() - before) / int(operations) * 1e6}

    def of_limit():
        done = subprocess.run([BINARY, "bench", "--limit", "--json", "--time", f"{options.seconds}s"], capture_output=True,
                              text=True, check=True)
        return {line["name"]: {"iops": line["iops"], "server_us": line["server_cpu_us_per_operation"]}
                for line in json.loads(done.stdout)}

    kinds = {"4 KiB random write, depth 32": (0, 32, "rand 4K q32 write, scattered"),
             "4 KiB random read, depth 32": (100, 32, "rand 4K q32 read"),
             "4 KiB random write, depth 1": (0, 1, "rand 4K q1 write, scattered"),
             "4 KiB random read, depth 1": (100, 1, "rand 4K q1 read")}
    found = {name: {"limit": [], "Forebay, held": []} for name in kinds}
    for _ in range(options.times):
        limits = of_limit()
        for name, (read_percent, depth, of) in kinds.items():
            found[name]["limit"].append(limits[of])
            found[name]["Forebay, held"].append(of_volume(read_percent, depth))
    rows = []
    for name, both in found.items():
        runs = {who: medians(values) for who, values in both.items()}
        part = runs["Forebay, held"]["server_us"] / runs["limit"]["server_us"]
        counts = "depth 32" in name
        rows.append(row(name, runs, f"at most 1.5 times the limit's CPU: **{part:.2f}**" if counts else "",
                        part <= 1.5 if counts else None))
    stand.release(volume)
    return {"rows": rows}


# --- destage ---

def destage(stand, options):
    """CPU of the daemon from the moment a hold ends until nothing is dirty, for each write to the backing, against fio writing the same
    file: 4 KiB pieces in ascending order with a gap of 28 KiB after each (so that nothing merges), io_uring, O_DIRECT, 32 at a time, one
    sync after each 32 MiB. It is the CPU of the two processes with their kernel workers, not of the whole machine, because the machine
    is not ours alone. The daemon verifies each payload's checksum before it leaves, fio does not; and it has up to 64 in flight, issued
    32 at a time, where the backing is as fast as here. Ext4 ends direct writes in a kernel thread, whose CPU neither is charged for."""
    image = stand.image("destage.img", 4 * GIB)
    pieces = 4 * GIB // (32 << 10)

    def of_fio():
        run = fio(image, "write:28k", size="512M", extra=["--io_size=512M", "--filesize=4G", "--fdatasync=8192"])
        nothing = fio(image, "write", size="4k")  # fio's own start and end
        return {"server_us": (run["client_s"] - nothing["client_s"]) / run["operations"] * 1e6, "operations": run["operations"], "iops": run["iops"]}

    def of_tier(make):
        server = stand.forebay([make(image, "1G")])
        server.call("drain", "v", "--hold", "24h")
        subprocess.run(fill_command(stand, server, pieces), check=True, capture_output=True)
        written, before, begin = server.show()["counters"]["backing_writes"], server.cpu_s(), time.monotonic()
        server.call("release", "v")
        drained(server)
        took = time.monotonic() - begin
        count = server.show()["counters"]["backing_writes"] - written
        used = server.cpu_s() - before
        stand.release(server)
        stand.image("destage.img", 4 * GIB)
        return {"server_us": used / count * 1e6, "operations": count, "iops": count / took}

    runs = alternate({"fio": of_fio, "Forebay, memory": lambda: of_tier(memory_volume),
                      "Forebay, flash": lambda: of_tier(flash_volume)}, options.times)
    parts = {who: runs[who]["server_us"] / runs["fio"]["server_us"] for who in ("Forebay, memory", "Forebay, flash")}
    goal = "CPU per backing write at most 1.3 times fio's: " + ", ".join(f"{w} **{p:.2f}**" for w, p in parts.items())
    return {"rows": [row("4 KiB writes to the backing, ascending with gaps", runs, goal, max(parts.values()) <= 1.3)]}


def fill_command(stand, server, pieces):
    """fio writes 4 KiB at each multiple of 32 KiB once, in random order, by a list of its own format."""
    order = list(range(pieces))
    random.Random(1).shuffle(order)
    path = stand.path("fill.iolog")
    if not path.exists():
        lines = ["fio version 2 iolog", "x add", "x open"]
        lines += [f"x write {at * 32768} 4096" for at in order] + ["x close"]
        path.write_text("\n".join(lines) + "\n")
    return ["fio", "--name=fill", "--ioengine=nbd", f"--uri={server.uri}", "--iodepth=32", f"--read_iolog={path}"]


# --- before slow storage ---

def throttle(stand, options):
    """4 KiB random writes at depth 32 before storage of 700 IOPS and 8 ms, destaging all the time. The tier (1 GiB) is smaller
    than what is written, so each run shows three things: the burst into the tier, the decline, and the speed of the storage behind it.
    Writes are slowed from a half-full tier on, smoothly. Goals: until then the 99th percentile at most 1/50 of the plain storage's; after
    it no second without completions. A flash tier's percentile is that of its disk (section *Flash tier* has fio alone on it). Plain: nbdkit's delay and rate filters, by fio directly."""
    seconds = options.long or (10 if options.quick else 60)
    plain_image = stand.image("plain.img", 4 * GIB)
    plain = stand.slow_nbdkit(plain_image)
    plain_run = fio(plain, "randwrite", 10, 32, size="4G")
    runs, plots, goals, met = {"nbdkit delay+rate, plain": plain_run}, [], [], True
    for tier, make in (("memory", memory_volume), ("flash", flash_volume)):
        for behind in ("slow:", "nbdkit delay+rate"):
            image = stand.image("tiered.img", 4 * GIB)
            backing_server = None if behind == "slow:" else stand.slow_nbdkit(image)
            backing = f"{SLOW}{image}" if backing_server is None else backing_server.uri
            server = stand.forebay([make(backing, "1G")])
            half = server.show()["dirty"]["bytes_max"] // 2 // 4096
            log = stand.path(f"throttle-{tier}-{len(plots)}")
            run = fio(server, "randwrite", seconds, 32, size="4G", latency_log=log)
            series, points = per_second(f"{log}_lat.1.log")
            # In order of completion; what is destaged or written twice meanwhile is too little to count.
            until_half = points[:half]
            before = sorted(us for _, us in until_half)
            run = {**run, "p99_us": before[int(len(before) * 0.99)]}
            name = f"Forebay, {tier}, before {behind}"
            runs[name] = run
            # fio ends in the middle of its last second.
            whole = series[:seconds]
            empty = sum(1 for second in whole if second["completions"] == 0)
            part = run["p99_us"] / plain_run["p99_us"]
            met = met and part <= 1 / 50 and empty == 0
            goals.append(f"{tier} before {behind}: p99 **1/{1 / part:.0f}** of plain until half full (at {until_half[-1][0] / 1000:.1f} s), "
                         f"**{empty}** seconds without completions, slowest reply {run['max_ms']:.0f} ms")
            plots.append({"name": f"throttle-{tier}-{'slow' if backing_server is None else 'nbdkit'}",
                          "title": f"{tier} tier of 1 GiB before {behind}, 4 KiB random writes, depth 32",
                          "plain": {"iops": plain_run["iops"], "p99_us": plain_run["p99_us"]}, "series": whole})
            stand.release(server, *([backing_server] if backing_server else []))
    stand.release(plain)
    return {"rows": [row(f"4 KiB random write, depth 32, {seconds} s", runs, "; ".join(goals), met)], "plots": plots}


def through(stand, options):
    """Write-through before the same slow storage, against that storage by fio directly: nbdkit with its delay and rate filters on both
    sides (a flush costs it a sync of its file). Goal: at least 90 % of the plain storage's IOPS. A flash tier pays for it: a record is in
    the log before it goes to the backing, which counts at depth 1. A flush also waits until the tier has synced its group. The checkpoint is
    no longer on its way: it is written while the next group goes out (docs/format.md, W4)."""
    contenders = {"nbdkit delay+rate, plain": stand.slow_nbdkit(stand.image("plain.img", GIB))}
    for tier, make in (("memory", memory_volume), ("flash", flash_volume)):
        backing = stand.slow_nbdkit(stand.image(f"through-{tier}.img", GIB))
        contenders[f"Forebay through, {tier}"] = stand.forebay([make(backing.uri, "1G", policy="through")])
    modelled = stand.image("modelled.img", GIB)
    contenders["Forebay through, memory, before slow:"] = stand.forebay(
        [memory_volume(f"{SLOW}{modelled}", "1G", policy="through")])
    rows = []
    for name, depth, extra in [("random write, depth 1", 1, []), ("random write, depth 32", 32, []),
                               ("random write and flush, depth 1", 1, ["--fsync=1"]),
                               ("random write, depth 32, flush after each 32", 32, ["--fsync=32"]),
                               ("random read, depth 32", 32, None)]:
        def measure(server, depth=depth, extra=extra):
            rw = "randread" if extra is None else "randwrite"
            return lambda: fio(server, rw, options.seconds, depth, extra=extra or [])
        runs = alternate({who: measure(server) for who, server in contenders.items()}, options.times)
        plain = runs["nbdkit delay+rate, plain"]["iops"]
        parts = {who: run["iops"] / plain for who, run in runs.items() if who.startswith("Forebay") and "slow:" not in who}
        goal = "at least 0.9 of plain: " + ", ".join(f"{who.split(', ')[1]} **{part:.2f}**" for who, part in parts.items())
        rows.append(row(f"4 KiB {name}", runs, goal, min(parts.values()) >= 0.9))
    stand.release(*reversed(stand.servers))
    return {"rows": rows}


def before_slow_storage(stand, stem, make_image):
    """Where a volume's backing may lie, each with the ways of destaging that are possible there: `slow:` of Forebay itself; nbdkit as an
    export; and nbdkit as a file, by nbdfuse, because a journal needs a place beside the image. Gives the name of the storage, the way,
    and what to put between `with` and `as` to have the backing."""
    def modelled():
        return contextlib.nullcontext(f"{SLOW}{make_image(f'{stem}.img', GIB)}")

    @contextlib.contextmanager
    def export(as_file):
        server = stand.slow_nbdkit(make_image(f"{stem}.img", GIB))
        with nbdfuse(server, stand.unique("file")) if as_file else contextlib.nullcontext(server.uri) as backing:
            yield backing
        stand.release(server)
    return [("slow:", "ordered", modelled), ("slow:", "journaled", modelled), ("nbdkit delay+rate", "ordered", lambda: export(False)),
            ("nbdkit delay+rate", "journaled", lambda: export(True))]


def flushes(stand, options):
    """4 KiB random writes with a flush after each (fio fsync=1), and SQLite (rollback journal, synchronous=FULL: several flushes for each
    transaction, a row of 100 bytes) on ext4 on a loop device over nbdfuse, before storage of 700 IOPS and 8 ms. Goal: at least 5 times
    the plain storage, sustained; for fio also the 99th percentile of a flush under 1 ms until the dirty limit (the figure here is of the
    whole run, beyond that limit too). `ordered` makes every group wait for a sync of the backing, so it cannot sustain this once the tier is
    full; `journaled` needs a place beside the image, so there nbdkit is reached as a file, by nbdfuse. SQLite's volumes have the
    default, `auto`. A flush of a flash tier is one sync of its device, so that device is the floor: fio alone, fdatasync=1, on a file of
    the same file system, before and after."""
    seconds = options.long or (10 if options.quick else 60)
    return {"rows": [fio_flushes(stand, seconds), *sqlite_flushes(stand, seconds)]}


def fio_flushes(stand, seconds):
    direct = stand.image("direct.img", GIB)
    floors = [fio(direct, "randwrite", 10, 1, extra=["--fdatasync=1"])]
    plain_server = stand.slow_nbdkit(stand.image("plain.img", GIB))
    runs = {"nbdkit delay+rate, plain": fio(plain_server, "randwrite", min(seconds, 60), 1, extra=["--fsync=1"])}
    stand.release(plain_server)
    plain, goals, met = runs["nbdkit delay+rate, plain"]["iops"], [], True
    for tier, make in (("memory", memory_volume), ("flash", flash_volume)):
        for behind, destage, reach in before_slow_storage(stand, f"flushes-{tier}", stand.image):
            with reach() as backing:
                server = stand.forebay([make(backing, "256M", destage=destage)])
                run = fio(server, "randwrite", seconds, 1, extra=["--fsync=1"])
                stand.release(server)
            runs[f"Forebay, {tier}, {destage}, before {behind}"] = run
            times, p99 = run["iops"] / plain, run["sync_p99_us"]
            met = met and times >= 5 and p99 < 1000
            goals.append(f"{tier} {destage} before {behind} **{times:.1f}** times plain, p99 of flush {p99 / 1000:.2f} ms")
    floors.append(fio(direct, "randwrite", 10, 1, extra=["--fdatasync=1"]))
    runs["fio, same file system, fdatasync=1"] = floor = medians(floors)
    goals.append(f"the disk's own fdatasync p99 {floor['sync_p99_us'] / 1000:.2f} ms")
    return row(f"4 KiB random write and flush, depth 1, {seconds} s", runs, "; ".join(goals), met)


def sqlite_flushes(stand, seconds):
    """One row, or none where this machine cannot mount."""
    missing = no_file_systems()
    if missing:
        print(f"bench: skipped: SQLite before slow storage: {missing}", flush=True)
        return []

    def run_on(server):
        with file_system(server, stand.unique("mounted")) as folder:
            return transactions(server, folder, seconds)
    plain_server = stand.slow_nbdkit(stand.ext4_image("plain.img", GIB))
    runs = {"nbdkit delay+rate, plain": run_on(plain_server)}
    stand.release(plain_server)
    plain, goals, met = runs["nbdkit delay+rate, plain"]["transactions_per_s"], [], True
    for tier, make in (("memory", memory_volume), ("flash", flash_volume)):
        for behind, destage, reach in before_slow_storage(stand, f"sqlite-{tier}", stand.ext4_image):
            if destage == "ordered":
                continue  # `auto` takes it only where there is no place for a journal
            with reach() as backing:
                server = stand.forebay([make(backing, "256M")])
                run = runs[f"Forebay, {tier}, before {behind}"] = run_on(server)
                stand.release(server)
            times = run["transactions_per_s"] / plain
            met = met and times >= 5
            goals.append(f"{tier} before {behind} **{times:.1f}**")
    return [row(f"SQLite on ext4, one INSERT after the other, {seconds} s", runs, "at least 5 times plain: " + "; ".join(goals), met)]


def transactions(server, folder, seconds):
    """Rows into a table, each its own transaction, one after the other."""
    database = sqlite3.connect(folder / "db", isolation_level=None)
    database.execute("PRAGMA journal_mode = DELETE")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, payload BLOB)")
    times, used, begin = [], server.cpu_s(), time.monotonic()
    now = begin
    while now < begin + seconds:
        database.execute("INSERT INTO rows (payload) VALUES (randomblob(100))")
        now, before = time.monotonic(), now
        times.append(now - before)
    used = server.cpu_s() - used
    if database.execute("SELECT count(*) FROM rows").fetchone()[0] != len(times):
        raise RuntimeError(f"{folder}: {len(times)} rows were inserted, and another number is there")
    database.close()
    return {"transactions_per_s": len(times) / (now - begin), "mean_us": statistics.mean(times) * 1e6,
            "p99_us": sorted(times)[int(len(times) * 0.99)] * 1e6, "max_ms": max(times) * 1e3, "operations": len(times),
            "server_us": used / len(times) * 1e6}


def merging(stand, options):
    """Zipf-distributed 4 KiB writes (theta 0.99) over 10 GiB with a tier of 1 GiB: acknowledged writes for each write to the backing, as
    nbdkit's `stats` filter counts them on the other side. Goals: 2 with `ordered`, 3 with `journaled` (there nbdkit is reached as a file, by
    nbdfuse; the journal lies beside it and is not counted). And a hot set of 64 MiB that is rewritten all the time: no write of it may
    be throttled."""
    rows = [zipf(stand, destage, aimed, 15 if options.quick else 60) for destage, aimed in (("ordered", 2), ("journaled", 3))]
    seconds = options.long or (15 if options.quick else 60)
    runs, throttled = {}, {}
    for tier, make in (("memory", memory_volume), ("flash", flash_volume)):
        server = stand.forebay([make(f"{SLOW}{stand.image('hot.img', GIB)}", "512M")])
        fio(server, "randwrite", 5, 32, size="64M")
        before = server.show()["counters"]["throttled_writes"]
        runs[f"Forebay, {tier}"] = fio(server, "randwrite", seconds, 32, size="64M")
        throttled[tier] = server.show()["counters"]["throttled_writes"] - before
        stand.release(server)
    rows.append(row(f"hot set of 64 MiB before slow:, depth 32, {seconds} s", runs, "writes throttled (none): " + ", ".join(
        f"{tier} **{count}**" for tier, count in throttled.items()), not any(throttled.values())))
    return {"rows": rows}


def zipf(stand, destage, aimed, seconds):
    image = stand.image("zipf.img", 10 * GIB)
    runs, goals, met = {}, [], True
    for tier, make in (("memory", memory_volume), ("flash", flash_volume)):
        stats = stand.unique("stats")
        storage = stand.nbdkit("--threads=16", "--filter=stats", "file", image, f"statsfile={stats}")
        with nbdfuse(storage, stand.unique("file")) if destage == "journaled" else contextlib.nullcontext(storage.uri) as backing:
            server = stand.forebay([make(backing, "1G", destage=destage)])
            run = fio(server, "randwrite", seconds, 32, size="10G", extra=["--random_distribution=zipf:0.99"])
            drained(server)
            stand.release(server)
        stand.release(storage)
        writes = next(int(line.split()[1]) for line in stats.read_text().splitlines() if line.startswith("write:"))
        run["per_backing_write"] = run["operations"] / writes
        runs[f"Forebay, {tier}"] = run
        met = met and run["per_backing_write"] >= aimed
        goals.append(f"{tier} **{run['per_backing_write']:.1f}**")
    return row(f"Zipf 0.99 over 10 GiB, {destage}, {seconds} s", runs,
               f"at least {aimed} acknowledged for each backing write: " + ", ".join(goals), met)


# --- flash tier ---

def flash(stand, options):
    """4 KiB random writes at depth 32 into a flash tier (a prewritten file), held, against fio writing a file of the same file system
    sequentially (io_uring, O_DIRECT, 4 KiB, depth 32). Goal: 80 %. The volume's writes pass fio's NBD engine, a socket and two
    cores that they share with the client; fio alone passes nothing. The tier is so large that nothing has to be compacted. The virtual
    disk's own speed changes several-fold within minutes (fio alone: 28,000 to 160,000 IOPS in one hour), so that single runs gave
    ratios from 0.5 to 2. With a tier of 4 GiB that is rewritten under a hold, so that compaction runs, it was 0.6 to 0.9 of fio on a busy
    machine."""
    server = stand.forebay([flash_volume(stand.image("held.img", GIB), "12G", memory="512M")])
    server.call("drain", "v", "--hold", "24h")
    warm(server)
    direct = stand.image("direct.img", GIB)
    runs = alternate({
        "fio, same file system": lambda: fio(direct, "write", options.seconds, 32),
        "Forebay, flash, held": lambda: fio(server, "randwrite", options.seconds, 32),
        "batched null server": (lambda null: lambda: fio(null, "randwrite", options.seconds, 32))(stand.null(GIB)),
    }, options.times)
    part = runs["Forebay, flash, held"]["iops"] / runs["fio, same file system"]["iops"]
    stand.release(*reversed(stand.servers))
    return {"rows": [row("4 KiB write, depth 32", runs, f"at least 0.8 of fio's IOPS: **{part:.2f}**", part >= 0.8)]}


# --- starts ---

def restart(stand, options):
    """SIGKILL with a log of 8 GiB of 4 KiB records that were written in random order, then a start: time from the start of the new process
    until a client's first read is answered. Goal: 1 s, flash and memory."""
    size = GIB if options.quick else 8 * GIB
    runs, goals, met = {}, [], True
    for tier, make, tier_size in (("memory", memory_volume, size * 9 // 8), ("flash", flash_volume, size * 7 // 4)):
        image = stand.image("restart.img", size)
        volume = make(image, tier_size)
        server = stand.forebay([volume], timeout_s=600, node={"shm_size": size + 2 * GIB})
        server.call("drain", "v", "--hold", "24h")
        filled = fio(server, "randwrite", size=str(size), extra=["--norandommap=0"])
        dirty = server.show()["dirty"]["bytes"]
        times = []
        for _ in range(options.times):
            server.process.kill()
            server.process.wait()
            begin = time.monotonic()
            again = server.again()
            wait_until("the volume to serve", lambda: first_read(again.socket, "v"), 120, 0.002)
            times.append(time.monotonic() - begin)
            stand.servers[stand.servers.index(server)] = again
            server = again
        kept = server.show()["dirty"]["bytes"]
        if kept < 0.9 * dirty:
            raise RuntimeError(f"{dirty} bytes were dirty before the kill, {kept} after it")
        seconds = statistics.median(times)
        runs[f"Forebay, {tier}"] = {"seconds_to_serve": seconds, "dirty_gib": dirty / GIB, "server_cpu_s": server.cpu_s(),
                                    "others_percent": filled["others_percent"]}
        goals.append(f"{tier} **{seconds:.2f} s** with {dirty / GIB:.1f} GiB dirty (all: {', '.join(f'{t:.2f}' for t in times)})")
        met = met and seconds <= 1
        stand.release(server)
    stand.image("restart.img", MIB)
    return {"rows": [row("SIGKILL to serving", runs, "within 1 s: " + "; ".join(goals), met)]}


def waits_of_threads(pid):
    waits = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        for line in (task / "status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches"):
                waits[task.name] = int(line.split()[1])
    return waits


def wakeups_per_s(pid, seconds):
    """How often any thread was woken. A thread that ends meanwhile takes its count with it: once it was woken for that."""
    before = waits_of_threads(pid)
    time.sleep(seconds)
    after = waits_of_threads(pid)
    ended = len(before.keys() - after.keys())
    return (sum(count - before.get(thread, 0) for thread, count in after.items()) + ended) / seconds


def idle(stand, options):
    """A daemon with one warm volume, a connected client and nothing to do: memory besides the arena, and how often any of its threads was
    woken (voluntary context switches). Goals: under 64 MiB, at most 2 a second."""
    seconds = 10 if options.quick else 30
    runs, goals, met = {}, [], True
    for tier, make in (("memory", memory_volume), ("flash", flash_volume)):
        server = stand.forebay([make(stand.image("held.img", GIB), "1G")])
        fio(server, "randwrite", 5, 32)
        drained(server)
        time.sleep(15)  # workers of the kernel and of the runtime that have nothing to do end
        cpu = server.cpu_s()
        rate = wakeups_per_s(server.pid, seconds)
        used = server.cpu_s() - cpu
        status = dict(line.split(":", 1) for line in Path(f"/proc/{server.pid}/status").read_text().splitlines())
        resident = sum(int(status[key].split()[0]) << 10 for key in ("RssAnon", "RssFile"))
        arena = server.show()["memory_bytes"]
        besides = (resident - arena) / MIB
        runs[f"Forebay, {tier}"] = {"wakeups_per_s": rate, "rss_besides_mib": besides, "cpu_ms_per_s": used / seconds * 1000}
        goals.append(f"{tier}: **{besides:.0f} MiB**, **{rate:.2f}** wake-ups a second")
        met = met and besides < 64 and rate <= 2
        stand.release(server)
    return {"rows": [row("idle daemon", runs, "; ".join(goals), met)]}


# --- many and large ---

def sparse(folder, name, size_bytes):
    path = Path(folder) / name
    path.with_name(f"{name}.forebay").unlink(missing_ok=True)  # of a volume that was given up
    with open(path, "wb") as file:
        file.truncate(size_bytes)
    return path


def scale(stand, options):
    """Server CPU for each operation must not depend on how large a volume is, nor on how many there are. Volumes of 1 GiB and of 64 TiB
    (sparse, in tmpfs) with equal memory tiers get the same number of writes at random places of the whole volume, held, and then read
    them back. A daemon with 1,000 volumes (2 MiB of tier, 1 MiB of memory each) is loaded on one of them, and on eight at
    once, beside a daemon that has only one, or eight. Goal: within 20 %."""
    count = 20_000 if options.quick else 150_000
    rows = []

    def of_size(size_bytes, text):
        backing = sparse(stand.memory, f"{text}.img", size_bytes)
        server = stand.forebay([memory_volume(backing, "1G")])
        server.call("drain", "v", "--hold", "24h")
        # The same places in each run, and as many different ones in the small volume as in the large one: what is compared is not how
        # much of the tier is in the processor's caches.
        extra = [f"--number_ios={count}", "--randrepeat=1", "--randseed=7", f"--norandommap={int(size_bytes > GIB)}"]
        fio(server, "randwrite", size=str(size_bytes), extra=extra)
        both = [[fio(server, rw, size=str(size_bytes), extra=extra) for _ in range(3)] for rw in ("randwrite", "randread")]
        stand.release(server)
        backing.unlink()
        return [medians(runs) for runs in both]

    sizes = {"1 GiB": GIB, "64 TiB": 64 << 40}
    found = {name: [] for name in sizes}
    for _ in range(options.times):
        for name, size in sizes.items():
            found[name].append(of_size(size, name.replace(" ", "-")))
    for at, what in enumerate(("write", "read")):
        runs = {name: medians([pair[at] for pair in pairs]) for name, pairs in found.items()}
        part = runs["64 TiB"]["server_us"] / runs["1 GiB"]["server_us"]
        rows.append(row(f"4 KiB random {what}, depth 32, volume of", runs, f"CPU per operation within 1.2: **{part:.2f}**",
                        part <= 1.2))

    def volumes(number, folder):
        return [{"name": f"v{i}", "backing": str(sparse(folder, f"v{i}.img", 64 * MIB)), "tier": "flash", "tier_size": "2M",
                 "memory": "1M"} for i in range(number)]
    many_count = 50 if options.quick else 1000
    folders = {name: stand.memory / name for name in ("few", "many")}
    for folder in folders.values():
        folder.mkdir()
    few = stand.forebay(volumes(8, folders["few"]))
    begin = time.monotonic()
    many = stand.forebay(volumes(many_count, folders["many"]), timeout_s=1200)
    made_s = time.monotonic() - begin
    for spread in (1, 8):
        def measure(server, spread=spread):
            # Small enough to stay in a tier of 2 MiB: the same work wherever it is done.
            uris = [server.uri_of(f"v{i}") for i in range(spread)]
            def run():
                before = server.cpu_s()
                run = fio(None, "randwrite", options.seconds, 32 // spread, size="256k", jobs=uris)
                run["server_us"] = (server.cpu_s() - before) / run["operations"] * 1e6
                return run
            return run
        runs = alternate({"8 volumes": measure(few), f"{many_count} volumes": measure(many)}, options.times)
        part = runs[f"{many_count} volumes"]["server_us"] / runs["8 volumes"]["server_us"]
        rows.append(row(f"4 KiB random write on {spread} of the node's volumes", runs,
                        f"CPU per operation within 1.2: **{part:.2f}**", part <= 1.2))
    status = dict(line.split(":", 1) for line in Path(f"/proc/{many.pid}/status").read_text().splitlines())
    time.sleep(15)
    runs = {f"{many_count} volumes": {"create_s": made_s, "rss_mib": int(status["VmRSS"].split()[0]) / 1024,
                                      "threads": int(status["Threads"]),
                                      "wakeups_per_s": wakeups_per_s(many.pid, 20)}}
    many.process.kill()
    many.process.wait()
    begin = time.monotonic()
    again = many.again()
    stand.servers[stand.servers.index(many)] = again
    again.await_ready(600)
    runs[f"{many_count} volumes"]["restart_s"] = time.monotonic() - begin
    rows.append(row("node with many volumes", runs))
    stand.release(few, again)
    return {"rows": rows}


def isolation(stand, options):
    """Eight volumes, all written at once, one of them with a backing that answers nothing any more: `faulty:hang_after`, and an nbdkit
    that was stopped (SIGSTOP). Goal: the other seven get within 10 % of what seven get beside a healthy, idle eighth."""
    def node(eighth):
        folder = stand.unique("images")
        folder.mkdir()
        backings = [str(stand.image(f"{folder.name}/v{i}.img", 128 * MIB)) for i in range(8)]
        volumes = [{"name": f"v{i}", "backing": backing, "tier": "memory", "volatile": True, "tier_size": "64M"}
                   for i, backing in enumerate(backings)]
        server = None
        if eighth == "faulty":
            volumes[7]["backing"] = f"faulty:hang_after=400:{backings[7]}"
        elif eighth == "stopped":
            server = stand.nbdkit("file", backings[7])
            volumes[7]["backing"] = server.uri
        node = stand.forebay(volumes)
        if eighth == "healthy":
            return node
        if server:
            server.process.send_signal(signal.SIGSTOP)
        # Its client writes until the tier is full, and then waits for ever, with all its requests open.
        stuck = subprocess.Popen(["fio", "--name=stuck", "--ioengine=nbd", f"--uri={node.uri_of('v7')}", "--rw=randwrite", "--bs=4k",
                                  "--iodepth=32", "--size=128M", "--norandommap=1", "--time_based=1", "--runtime=86400"],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stand.servers.append(Helper(stuck))
        wait_until("the eighth volume's writes to wait", lambda: node.show("v7")["dirty"]["waiting_writes"] > 0, 120, 0.5)
        return node

    nodes = {"eighth healthy and idle": node("healthy"), "eighth hangs (faulty:)": node("faulty"),
             "eighth's nbdkit stopped": node("stopped")}
    def measure(server):
        uris = [server.uri_of(f"v{i}") for i in range(7)]
        def run():
            before = server.cpu_s()
            run = fio(None, "randrw", options.seconds, 4, size="32m", jobs=uris)
            run["server_us"] = (server.cpu_s() - before) / run["operations"] * 1e6
            return run
        return run
    runs = alternate({name: measure(server) for name, server in nodes.items()}, options.times)
    healthy = runs["eighth healthy and idle"]["iops"]
    parts = [run["iops"] / healthy for name, run in runs.items() if name != "eighth healthy and idle"]
    for server in stand.servers:
        server.process.send_signal(signal.SIGCONT)
    stand.release(*reversed(stand.servers))
    goal = "the other seven at least 0.9: " + ", ".join(f"**{part:.2f}**" for part in parts)
    return {"rows": [row("4 KiB random read and write on seven volumes, depth 4 each", runs, goal, min(parts) >= 0.9)]}


class Helper:
    """A process that is not a server, to be ended with the others."""

    def __init__(self, process):
        self.process = process

    def stop(self, by=signal.SIGKILL):
        self.process.kill()
        self.process.wait()


SECTIONS = {
    "front": ("Serving: memory tier and other servers", front),
    "sequential": ("Large sequential requests", sequential),
    "limit": ("The physical limit", limit),
    "flash": ("Flash tier", flash),
    "throttle": ("Before slow storage, until and beyond the dirty limit", throttle),
    "through": ("Write-through", through),
    "flushes": ("A flush after each write", flushes),
    "merging": ("Merging, and a hot set", merging),
    "destage": ("Cost of destaging", destage),
    "restart": ("Restart after SIGKILL", restart),
    "idle": ("Idle", idle),
    "scale": ("Size and number of volumes", scale),
    "isolation": ("One dead backing among eight", isolation),
    "replica": ("Several nodes: replicas", replica),
    "links": ("Several nodes: links", links),
    "compression": ("Several nodes: compression", compression),
    "takeover": ("Several nodes: take-over", takeover),
    "matrix": ("Memory bandwidth: the doctor's matrix and other programs", matrix),
}
