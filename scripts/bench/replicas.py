"""What is measured of several nodes: replicas, links, compression, take-over. One function for each section, as in sections.py.

Hosts are network namespaces of this machine, so owner, member, client and the wires between them share its cores.
"""

import contextlib
import os
import shutil
import statistics
import subprocess
import threading
import time

import bmc
from hosts import Cluster, Hosts, Mirror, missing
from others import Ceph, Gluster
from stand import GIB, MIB, ROOT, alternate, fio, wait_until

SLOW = "slow:iops=700,latency=8ms:"
# What members wait before they ask for ownership; the cluster's default.
GRACE_S = 5


def row(name, runs, goal="", met=None):
    """One line of a table, as the report wants it."""
    return {"name": name, "runs": runs, "goal": goal, "met": met}


def nothing(reason):
    """A section that cannot be measured here says so, and meets nothing."""
    return {"rows": [row(f"not measured: {reason}", {})]}


# --- replicas ---

def replica(stand, options):
    """4 KiB random writes to 256 MiB by fio on a unix socket, each acknowledged when two hosts have it in memory: two network namespaces
    with one link, all on the same cores. Forebay's image lies on tmpfs and is destaged to meanwhile; the log lies in both nodes' memory.
    The active mirror is QEMU's (`copy-mode=write-blocking`): a raw file on tmpfs, and another one behind `qemu-nbd` on the other host, by
    the same wire, on which TCP acknowledges at once (else its client waits for delayed acknowledgements, 40 ms each); or on the same
    host by a unix socket, which spares it the wire and is shown only. Plain links stand against plain peers, with TLS beside them. Ceph (memstore, two copies, `rbd_cache` off) and
    GlusterFS (replica 2, bricks on tmpfs, no write-behind) run on this machine's loopback, without a wire: that favours them. *One copy*
    is the same memory tier without a peer. The round trip is that of 4246 bytes there and 150 back by TCP on the same wire, between two
    processes that block, each on a core of its own. Server CPU is that of all servers of a contender."""
    if reason := missing("qemu-storage-daemon", "qemu-nbd"):
        return nothing(reason)
    with contextlib.ExitStack() as stack:
        contenders, absent = replica_contenders(stand, stack)
        for contender in contenders.values():
            fio(contender, "write", block="1m", depth=8, size="256M")
        rows, latency = [], {}
        for depth, least in ((1, 2), (16, 3)):
            measures = {name: loader(contender, depth, options.seconds) for name, contender in contenders.items()}
            measures["round trip of the wire"] = lambda: {"mean_us": contenders["Forebay, plain links"].hosts.round_trip_us()}
            runs = alternate({name: measure for name, measure in measures.items() if depth == 1 or name != "round trip of the wire"},
                             options.times)
            latency = latency or runs
            rows.append(against_others(f"4 KiB random write, two copies, depth {depth}", runs, least))
        rows.append(against_one_copy(latency))
    for name, reason in absent.items():
        rows.append(row(f"{name}: not measured, because {reason}", {}))
    return {"rows": rows}


def loader(contender, depth, seconds):
    return lambda: fio(contender, "randwrite", seconds, depth, size="256M")


def replica_contenders(stand, stack):
    """Those that can run here, and why the others cannot."""
    contenders, absent = {}, {}
    for name, security in (("Forebay, plain links", "plain"), ("Forebay, TLS", "tls")):
        cluster = stack.enter_context(contextlib.closing(Cluster(stand, hosts_of(stack, 2, 1), security=security)))
        cluster.create(stand.memory / f"{security}.img", "256M", "1G")
        contenders[name] = cluster
    for name, wire in (("QEMU active mirror", True), ("QEMU active mirror, no wire", False)):
        mirror = Mirror(stand, hosts_of(stack, 2, 1), 256 * MIB, wire)
        contenders[name] = stack.enter_context(contextlib.closing(mirror))
    for kind in (Ceph, Gluster):
        try:
            contenders[kind.name] = stack.enter_context(contextlib.closing(kind(stand, 256 * MIB)))
        except (RuntimeError, OSError, subprocess.SubprocessError) as why:
            absent[kind.name] = str(why)
    image = stand.memory / "one.img"
    image.touch()
    os.truncate(image, 256 * MIB)
    alone = stand.forebay([{"name": "v", "backing": str(image), "tier": "memory", "volatile": True, "tier_size": "1G"}])
    stack.callback(stand.release, alone)
    contenders["Forebay, one copy"] = alone
    return contenders, absent


def hosts_of(stack, count, links):
    return stack.enter_context(contextlib.closing(Hosts(count, links)))


def against_others(name, runs, least):
    ours = runs["Forebay, plain links"]["iops"]
    goals = [("QEMU active mirror", least), (Ceph.name, 8), (Gluster.name, 5)]
    parts = [(who, times, ours / runs[who]["iops"]) for who, times in goals if who in runs]
    goal = "IOPS of " + ", ".join(f"{who} times at least {times}: **{part:.2f}**" for who, times, part in parts)
    return row(name, runs, goal, all(part >= times for _, times, part in parts))


def against_one_copy(runs):
    trip, alone, ours = (runs[who]["mean_us"] for who in ("round trip of the wire", "Forebay, one copy", "Forebay, plain links"))
    most = 2 * alone + trip
    return row("latency of a second copy, depth 1", {who: {"mean_us": runs[who]["mean_us"]} for who in (
        "Forebay, plain links", "Forebay, one copy", "round trip of the wire")},
        f"at most twice that of one copy and one round trip ({most:.0f} us): **{ours / most:.2f}** of that", ours <= most)


# --- links ---

def links(stand, options):
    """512 KiB sequential writes, 32 at a time, acknowledged by two hosts, over two links shaped by tc (tbf, both ways, 20 ms of queue);
    what iperf3 carries with one stream on one link alone stands for what TCP can carry there, both after a second to get going. Destage
    is held, because it is the links that are measured and all hosts share two cores. A link is cut by taking its carrier away: the longest stall is the longest time without a completed write, and full speed
    is there again when 250 ms passed at 95 % of what both links carried before."""
    if reason := missing("iperf3"):
        return nothing(reason)
    found = {}

    def note(case, **figures):
        for key, value in figures.items():
            found.setdefault(case, {}).setdefault(key, []).append(value)
    with contextlib.ExitStack() as stack:
        hosts = hosts_of(stack, 2, 2)
        cluster = stack.enter_context(contextlib.closing(Cluster(stand, hosts, settings=['compression = "off"'])))
        cluster.create(stand.memory / "links.img", "256M", "1G")
        cluster.nodes[0].call("volume", "drain", "vm1", "--hold", "24h")
        for _ in range(options.times):
            for second in (2500, 1000):
                hosts.shape([2500, second])
                alone = [hosts.iperf(link, options.seconds) for link in (0, 1)]
                note(f"2500 + {second}: iperf3 on each link alone, sum", mbit_per_s=sum(alone))
                run = fio(cluster, "write", options.seconds, 32, "512k", "256M", extra=["--ramp_time=1"])
                note(f"2500 + {second}: replicated write", **mbit(run))
                if second == 2500:
                    note("2500 + 2500: one cut, and back", **cut(stand, cluster, run["mib_per_s"]))
    runs = {case: {key: statistics.median(values) for key, values in figures.items()} for case, figures in found.items()}
    rows = []
    for second, least in ((2500, 0.97), (1000, 0.95)):
        both, sum_of = runs[f"2500 + {second}: replicated write"], runs[f"2500 + {second}: iperf3 on each link alone, sum"]
        part = both["mbit_per_s"] / sum_of["mbit_per_s"]
        rows.append(row(f"two links, 2500 and {second} Mbit/s", {"iperf3, one link at a time, sum": sum_of, "replicated write": both},
                        f"at least {least:.2f} of what TCP carries: **{part:.3f}**", part >= least))
    both = runs["2500 + 2500: one cut, and back"]
    rows.append(row("one of two links is cut for 2 s", {"replicated write": both},
                    f"no stall over 200 ms: **{both['stall_ms']:.0f} ms**; full speed within 2 s: **{both['recovery_s']:.2f} s**",
                    both["stall_ms"] <= 200 and both["recovery_s"] <= 2))
    return {"rows": rows}


def mbit(run):
    return {"mbit_per_s": run["mib_per_s"] * MIB * 8 / 1e6, "mean_us": run["mean_us"], "max_ms": run["max_ms"],
            "cores": run["server_us"] * run["operations"] / 1e6 / run["seconds"]}


def cut(stand, cluster, full):
    """Of a load during which one of the links is away for two seconds."""
    log = stand.unique("cut")
    pulled = []

    def pull():
        time.sleep(3)
        for plugged in (False, True):
            pulled.append(time.time())
            cluster.hosts.set_cable(1, 1, plugged)
            time.sleep(2)
    with meanwhile(pull):
        run = fio(cluster, "write", 10, 8, "512k", "256M", extra=["--log_unix_epoch=1"], latency_log=log)
    done = sorted(int(line.split(",", 1)[0]) / 1e3 for line in open(f"{log}_lat.1.log"))
    gaps = [after - before for before, after in zip(done, done[1:])]
    enough = 0.95 * full * 0.25 / 0.5  # requests of 512 KiB in 250 ms
    back = pulled[1]
    windows = (back + step / 20 for step in range(200))
    recovered = next(begin for begin in windows if sum(begin <= at < begin + 0.25 for at in done) >= enough)
    return {"stall_ms": max(gaps) * 1e3, "recovery_s": recovered - back, "max_ms": run["max_ms"]}


@contextlib.contextmanager
def meanwhile(work):
    """Something that happens while something else goes on; its error is this one's."""
    failed = []

    def body():
        try:
            work()
        except Exception as why:
            failed.append(why)
    thread = threading.Thread(target=body)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    if failed:
        raise failed[0]


# --- compression ---

def compression(stand, options):
    """One link of 1 Gbit/s; `nbdcopy` writes 768 MiB in requests of 256 KiB, 16 at a time, to a volume that acknowledges by two hosts:
    first this repository's sources and object files, then noise. `compression = "auto"` against `"off"`, the same otherwise. Cores are
    the CPU time of both daemons that packing and unpacking cost more than sending plain, for each 100 MB/s that the wire was spared."""
    if reason := missing("nbdcopy"):
        return nothing(reason)
    size = 768 * MIB
    content = {"build output": build_output(stand.folder / "build", size), "noise": noise(stand.folder / "noise", size)}
    runs = {}
    with contextlib.ExitStack() as stack:
        clusters = {}
        for choice in ("off", "auto"):
            hosts = hosts_of(stack, 2, 1)
            hosts.shape([1000])
            clusters[choice] = stack.enter_context(
                contextlib.closing(Cluster(stand, hosts, settings=[f'compression = "{choice}"'])))
            clusters[choice].create(stand.memory / f"{choice}.img", str(size), "1536M")
        for kind, file in content.items():
            runs[kind] = alternate({f"compression {choice}": copier(cluster, file, size) for choice, cluster in clusters.items()},
                                   options.times)
    return {"rows": [of_build_output(runs["build output"]), of_noise(runs["noise"])]}


def copier(cluster, file, size):
    def measure():
        before, cpu, begin = packed(cluster), cluster.cpu_s(), time.monotonic()
        subprocess.run(["nbdcopy", "--sparse=0", "--no-extents", "--requests=16", "--request-size=262144", "--connections=1", file,
                        cluster.uri], check=True, capture_output=True)
        took, used = time.monotonic() - begin, cluster.cpu_s() - cpu
        after = packed(cluster)
        wait_until("the copy to be destaged", lambda: cluster.nodes[0].show()["dirty"]["bytes"] == 0, 120, 0.2)
        plain, short = (after[key] - before[key] for key in ("from_bytes", "to_bytes"))
        return {"mb_per_s": size / 1e6 / took, "cores": used / took, "ratio": plain / short if short else 1.0,
                "saved_mb": (plain - short) / 1e6, "is_off": float(after["now"] == "off"), "packing_s": after["cpu_s"] - before["cpu_s"], "cpu_s": used}
    return measure


def packed(cluster):
    nodes = cluster.nodes[0].call("node", "list")
    return next(node["compression"] for node in nodes if "compression" in node)


def of_build_output(runs):
    plain, auto = runs["compression off"], runs["compression auto"]
    gain = auto["mb_per_s"] / plain["mb_per_s"]
    dear = (auto["cpu_s"] - plain["cpu_s"]) / (auto["saved_mb"] / 100) if auto["saved_mb"] else float("inf")
    return row("1 Gbit/s, sources and object files", runs,
               f"at least 1.8 times the throughput: **{gain:.2f}**; at most 0.4 cores for each 100 MB/s saved: **{dear:.2f}**",
               gain >= 1.8 and dear <= 0.4)


def of_noise(runs):
    part = runs["compression auto"]["mb_per_s"] / runs["compression off"]["mb_per_s"]
    return row("1 Gbit/s, incompressible", runs, f"within 2 % of compression off: **{part:.3f}**", part >= 0.98)


def build_output(path, size):
    """What a build writes: sources and object files of this repository, over and over."""
    objects = sorted((ROOT / "target/release/deps").glob("libforebay_*.rlib"))
    if not objects:
        raise RuntimeError("there are no object files in target/release/deps: build first, as scripts/bench.sh does")
    once = b"".join(file.read_bytes()[:16 * MIB] for file in sorted(ROOT.glob("*/src/**/*.rs")) + objects)
    with path.open("wb") as out:
        while out.tell() < size:
            out.write(once[:size - out.tell()])
    return path


def noise(path, size):
    with path.open("wb") as out:
        for _ in range(size // MIB):
            out.write(os.urandom(MIB))
    return path


# --- take-over ---

def takeover(stand, options):
    """What a client waits for when a host dies (SIGKILL of its daemon). *Peer*: three nodes, two copies besides the owner's, more than 60 s
    of backlog before a backing of 700 IOPS and 8 ms, 4 KiB random writes 4 at a time at 1,000 a second; the longest that one of them took.
    (Without its spare the volume slows writes down to what the backing takes, until what is dirty drains in 10 s again.) *Owner*: from the kill until another node answers a read of the volume, less the grace of 5 s that the members are asked to wait; the
    backing is a plain file and there is no fence. *STONITH*: the same where each node is on a machine of its own, as far as it can tell, so that
    no lock proves anything: the new owner has the former one's machine switched off by IPMI (OpenIPMI's simulator), some seconds after it has
    begun to serve, because it has not to wait for that. *To proof*: until it is certain that the former owner writes no more, counted as well from the end of the
    grace. Each is repeated with two busy loops for each core of the machine, at usual priority, while the host is dead."""
    if reason := missing(*bmc.TOOLS):
        return nothing(reason)
    rows = []
    for busy in (False, True):
        words = ", all cores busy" if busy else ""
        longest = [peer_killed(stand, busy) for _ in range(options.times)]
        waits = {"spare peer": {key: statistics.median(run[key] for run in longest) for key in longest[0]}}
        most = max(run["max_ms"] for run in longest)
        rows.append(row(f"peer killed{words}", waits, f"no write waits longer than 1 s: **{most:.0f} ms** at most", most <= 1000))
        for nodes, fenced in ((2, False), (3, False), (3, True)):
            runs = owner_killed(stand, nodes, options.times, busy, fenced)
            served = max(run["seconds_to_serve"] for run in runs)
            after = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
            rows.append(row(f"owner killed, {nodes} nodes{', STONITH' if fenced else ''}{words}", {"after the grace": after},
                            f"serving at most 2 s after the grace: **{served:.2f} s** at most", served <= 2))
    return {"rows": rows}


@contextlib.contextmanager
def busy_cores(busy):
    loops = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(2 * os.cpu_count() if busy else 0)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def new_image(stand, stack, name):
    """An image, which no marker of an earlier volume keeps from being used."""
    folder = stand.unique(name)
    folder.mkdir()
    stack.callback(shutil.rmtree, folder)
    return folder / "image"


def peer_killed(stand, busy):
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(contextlib.closing(Cluster(stand, hosts_of(stack, 3, 1), nodes=3)))
        image = new_image(stand, stack, "killed")
        owner = cluster.create(f"{SLOW}{image}", "4G", "2G", peers=2)
        fio(cluster, "randwrite", None, 16, size="4G", extra=["--io_size=320M"])
        dirty = owner.show()["dirty"]

        def kill():
            time.sleep(3)
            cluster.kill(2)
        with busy_cores(busy), meanwhile(kill):
            run = fio(cluster, "randwrite", 8, 4, size="4G", extra=["--rate_iops=1000"])
        return {"iops": run["iops"], "mean_us": run["mean_us"], "max_ms": run["max_ms"], "dirty_gib": dirty["bytes"] / GIB,
                "backlog_s": dirty["bytes"] / 4096 / 700}


def owner_killed(stand, nodes, times, busy, fenced):
    """Seconds beyond the grace, of each time: the owner is killed under load, and comes back as a peer afterwards."""
    runs = []
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(contextlib.closing(Cluster(stand, hosts_of(stack, nodes, 1), nodes=nodes, fenced=fenced)))
        image = new_image(stand, stack, "taken")
        cluster.create(image, "256M", "512M")
        owner = 0
        for _ in range(times):
            with load_until_it_breaks(cluster.nodes[owner]), busy_cores(busy):
                cluster.kill(owner)
                killed = time.monotonic()
                wait_until("another node to serve", lambda: is_served(cluster), 60, 0.005)
                runs.append({"seconds_to_serve": time.monotonic() - killed - GRACE_S})
                former, owner = owner, wait_until("the owner to be known", lambda: owner_of(cluster), 60, 0.05).number
                if fenced:
                    wait_until("proof about the former owner", lambda: unfenced(cluster.nodes[owner]) == 0, 60, 0.02)
                    runs[-1]["seconds_to_proof"] = time.monotonic() - killed - GRACE_S
            cluster.start(former)
            cluster.await_copies(owner)
    return runs


def unfenced(node):
    shown = node.asked("volume", "show", "vm1")
    return shown["cluster"]["unfenced"] if shown else None


def is_served(cluster):
    """Whichever node answers: those that are not the owner forward to it."""
    return any(node.serves() for node in cluster.nodes if node)


def owner_of(cluster):
    def owns(node):
        shown = node.asked("volume", "show", "vm1")
        return shown and shown["cluster"]["state"] == "owner"
    return next((node for node in cluster.nodes if node and owns(node)), None)


@contextlib.contextmanager
def load_until_it_breaks(node):
    """fio writes when the body runs, and ends with its server."""
    words = ["fio", "--name=load", "--ioengine=nbd", f"--uri={node.uri}", "--rw=randwrite", "--bs=4k", "--iodepth=4", "--size=256M",
             "--time_based=1", "--runtime=30", "--thread=1"]
    load = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(2)
    try:
        yield
    finally:
        load.kill()
        load.wait()
