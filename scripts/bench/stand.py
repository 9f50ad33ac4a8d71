"""The test stand: servers under measurement, load by fio, and what both cost.

Invariants:
- Every process that is started here is ended here, by its own number; every file lies in one folder, removed at the end.
- CPU is that of the server's process with all its threads, the kernel's io_uring workers among them, as /proc counts it.
  Kernel threads outside of the process (block layer completions, journal) belong to nobody and are counted for nobody.
"""

import contextlib
import ctypes
import json
import os
import platform
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Another build than this tree's, such as one to compare with.
BINARY = Path(os.environ.get("FOREBAY_BIN", ROOT / "target/release/forebay"))
EXAMPLES = ROOT / "target/release/examples"
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
GIB = 1 << 30
MIB = 1 << 20


def cpu_s(pid):
    """User and system time of a process in all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def machine_busy_s():
    """CPU time that anything has used since boot."""
    user, nice, system, _, _, irq, soft, steal, *_ = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:])
    return (user + nice + system + irq + soft + steal) * TICK_S


def wait_until(what, check, timeout_s=60, pause_s=0.01):
    """Polls until `check` gives something; an error that says what was awaited otherwise."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        found = check()
        if found:
            return found
        time.sleep(pause_s)
    raise RuntimeError(f"waited {timeout_s} s in vain for {what}")


def first_read(socket_path, export):
    """Connects, negotiates and reads 4 KiB; true when the volume has answered. Older than any library: 40 bytes of protocol."""
    try:
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(5)
            s.connect(str(socket_path))
            def exactly(count):
                data = b""
                while len(data) < count:
                    more = s.recv(count - len(data))
                    if not more:
                        raise OSError("closed")
                    data += more
                return data
            exactly(18)
            name = export.encode()
            s.sendall(b"\0\0\0\3" + b"IHAVEOPT\0\0\0\7" + (len(name) + 6).to_bytes(4, "big")
                      + len(name).to_bytes(4, "big") + name + b"\0\0")
            while True:
                reply = exactly(20)
                kind, length = int.from_bytes(reply[12:16], "big"), int.from_bytes(reply[16:20], "big")
                exactly(length)
                if kind == 1:
                    break
                if kind & 1 << 31:
                    return False
            s.sendall(bytes.fromhex("25609513") + b"\0\0\0\0" + b"8 bytes!" + b"\0" * 8 + b"\0\0\x10\0")
            return exactly(16)[4:8] == b"\0\0\0\0"
    except OSError:
        return False


class Server:
    """A process that serves NBD on a unix socket."""

    def __init__(self, name, command, socket_path, export="", log=None, environment=None):
        self.name, self.socket, self.export = name, socket_path, export
        self.log_path = log
        output = open(log, "ab") if log else subprocess.DEVNULL
        self.process = subprocess.Popen([str(c) for c in command], stdout=output, stderr=subprocess.STDOUT,
                                        env={**os.environ, **(environment or {})})

    @property
    def pid(self):
        return self.process.pid

    @property
    def uri(self):
        return f"nbd+unix:///{self.export}?socket={self.socket}"

    def cpu_s(self):
        return cpu_s(self.pid)

    def await_ready(self, timeout_s=120):
        def check():
            if self.process.poll() is not None:
                text = Path(self.log_path).read_text()[-2000:] if self.log_path else ""
                raise RuntimeError(f"{self.name} ended with {self.process.returncode}: {text}")
            return first_read(self.socket, self.export)
        wait_until(f"{self.name} to serve", check, timeout_s)
        return self

    def stop(self, by=signal.SIGTERM, timeout_s=120):
        if self.process.poll() is None:
            self.process.send_signal(by)
            try:
                self.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Forebay(Server):
    """The daemon, by a config file of its own."""

    def __init__(self, folder, volumes, name="forebay", environment=None, node=None):
        self.made_with = (folder, volumes, name, environment, node)
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.api = self.folder / "api.sock"
        node = "".join(f"{key} = {json.dumps(value)}\n" for key, value in (node or {}).items())
        lines = [f'[node]\nstate = "{self.folder}/state"\n{node}[listen]\nnbd = ["unix:{self.folder}/nbd.sock"]\n'
                 f'api = "{self.api}"\nhttp = "off"\nconnections_max = 1024\n']
        for volume in volumes:
            lines.append("[[volume]]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in volume.items()]
        config = self.folder / "forebay.toml"
        config.write_text("\n".join(lines) + "\n")
        super().__init__(name, [BINARY, "serve", "--config", config], self.folder / "nbd.sock", volumes[0]["name"],
                         self.folder / "log", environment)

    def again(self):
        """The same daemon once more, after its end."""
        return Forebay(*self.made_with)

    def call(self, *words):
        done = subprocess.run([BINARY, "volume", "--api", self.api, "--json", *words], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"forebay volume {' '.join(words)}: {done.stderr.strip()}")
        return json.loads(done.stdout) if done.stdout.strip() else None

    def show(self, volume=None):
        return self.call("show", volume or self.export)

    def uri_of(self, volume):
        return f"nbd+unix:///{volume}?socket={self.socket}"


def prefer_this_session():
    """Makes this machine's other work matter less to every server and client alike, without taking it the CPU as a real-time priority
    would. Linux schedules sessions as groups (autogroup), so that work at idle priority in another session has an equal share beside
    ours: our group asks for more. And who runs may keep the CPU for a slice of 3 ms although another was woken: ours are
    short, and a woken process with a shorter slice goes first. What is refused (no root, an old kernel) makes figures noisier."""
    try:
        os.setsid()
    except PermissionError:
        pass  # leader of a session already
    try:
        Path("/proc/self/autogroup").write_text("-20")
    except OSError:
        pass
    if platform.machine() == "x86_64":
        sched_setattr, slice_ns = 314, 100_000
        attributes = struct.pack("IIQiIQQQ", 48, 0, 0, 0, 0, slice_ns, 0, 0)
        ctypes.CDLL(None).syscall(sched_setattr, 0, attributes, 0)


class Stand:
    """A folder, and everything that runs in it."""

    def __init__(self, folder):
        prefer_this_session()
        self.folder = Path(folder)
        if self.folder.exists():
            raise SystemExit(f"bench: {self.folder} is there already; remove it, or name another by BENCH_DIR")
        self.folder.mkdir(parents=True)
        self.memory = Path("/dev/shm") / f"forebay-bench-{os.getpid()}"
        self.memory.mkdir()
        self.servers = []
        self.made = 0

    def path(self, name):
        return self.folder / name

    def unique(self, stem):
        self.made += 1
        return self.folder / f"{stem}-{self.made}"

    def started(self, server, timeout_s=120):
        self.servers.append(server)
        return server.await_ready(timeout_s)

    def image(self, name, size_bytes):
        """A file, wholly written, not sparse, and of no volume: one that had it was given up with its tier."""
        path = self.folder / name
        for beside in ("forebay", "forebay-journal"):
            path.with_name(f"{path.name}.{beside}").unlink(missing_ok=True)
        if not path.exists() or path.stat().st_size != size_bytes:
            block = os.urandom(MIB)
            with open(path, "wb") as file:
                for _ in range(size_bytes // MIB):
                    file.write(block)
                file.flush()
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return path

    def ext4_image(self, name, size_bytes):
        """A file as `image` makes it, and then a file system; nothing of that is left to be done after the mount, or discarded."""
        path = self.image(name, size_bytes)
        later = "nodiscard,lazy_itable_init=0,lazy_journal_init=0"
        subprocess.run(["mkfs.ext4", "-q", "-F", "-E", later, path], check=True, capture_output=True)
        return path

    def forebay(self, volumes, timeout_s=300, **options):
        folder = self.unique("forebay")
        environment = {"RUNTIME_DIRECTORY": str(self.memory), **options.pop("environment", {})}
        return self.started(Forebay(folder, volumes, environment=environment, **options), timeout_s)

    def nbdkit(self, *words, name="nbdkit"):
        path = self.unique("nbdkit")
        return self.started(Server(name, ["nbdkit", "--foreground", "--unix", path, *words], path, log=f"{path}.log"))

    def qemu_nbd(self, image):
        path = self.unique("qemu-nbd")
        command = ["qemu-nbd", "--cache=writeback", "--format=raw", "--persistent", "--shared=16", "--socket", path, image]
        return self.started(Server("qemu-nbd --cache=writeback", command, path, log=f"{path}.log"))

    def null(self, size_bytes):
        """The batched server of the front end over plain memory: no log, no tier, no checksum kept."""
        path = self.unique("null")
        command = [EXAMPLES / "nbd-memory", f"unix:{path}", str(size_bytes // MIB)]
        return self.started(Server("batched null server", command, path, log=f"{path}.log"))

    def slow_nbdkit(self, image):
        """700 IOPS and 8 ms by another program: its delay filter, six requests at a time, and its rate filter."""
        return self.nbdkit("--threads=6", "--filter=delay", "--filter=rate", "file", image, "delay-read=8ms",
                           "delay-write=8ms", "delay-zero=8ms", "delay-trim=8ms", "rate=880M", name="nbdkit delay+rate")

    def release(self, *servers):
        """Ends servers and removes what belongs to them alone. Data that waits in a tier is given up."""
        for server in servers:
            server.stop(signal.SIGKILL if isinstance(server, Forebay) else signal.SIGTERM)
            self.servers.remove(server)
            if isinstance(server, Forebay):
                shutil.rmtree(server.folder, ignore_errors=True)
                for left in self.memory.glob("memory/*"):
                    left.unlink(missing_ok=True)

    def close(self):
        for server in self.servers:
            server.stop(signal.SIGKILL)
        for mount in reversed(Path("/proc/mounts").read_text().split("\n")):
            words = mount.split()
            if len(words) > 1 and words[1].startswith(str(self.memory)):
                subprocess.run(["umount", words[1]], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self.memory, ignore_errors=True)


def no_file_systems():
    """What is missing here to mount what an NBD server serves; nothing: none."""
    if os.geteuid() != 0:
        return "mounting needs root"
    devices = [device for device in ("/dev/fuse", "/dev/loop-control") if not Path(device).exists()]
    tools = [tool for tool in ("nbdfuse", "fusermount3", "losetup", "mkfs.ext4", "mount") if not shutil.which(tool)]
    return f"there is no {' and no '.join(devices + tools)} (scripts/setup.sh)" if devices + tools else ""


@contextlib.contextmanager
def nbdfuse(server, path):
    """An export as a file, mounted on the file itself, so that its neighbours in the folder are plain files."""
    path.touch()
    process = subprocess.Popen(["nbdfuse", path, server.uri], stdin=subprocess.DEVNULL)
    try:
        wait_until("nbdfuse to mount", lambda: path.stat().st_size > 0, 20)
        yield path
    finally:
        # Lazily: whoever still uses it after an error must not keep the others.
        subprocess.run(["fusermount3", "-u", "-z", path], check=False)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
        process.kill()


@contextlib.contextmanager
def file_system(server, folder):
    """An ext4 image that a server serves, mounted: nbdfuse, a loop device, the kernel's ext4."""
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(nbdfuse(server, folder.with_name(f"{folder.name}.disk")))
        attached = subprocess.run(["losetup", "--find", "--show", file], check=True, capture_output=True, text=True)
        device = attached.stdout.strip()
        stack.callback(subprocess.run, ["losetup", "--detach", device], check=False)
        folder.mkdir()
        subprocess.run(["mount", "-t", "ext4", device, folder], check=True)
        stack.callback(subprocess.run, ["umount", folder], check=False)
        yield folder


def fio(target, rw, seconds=None, depth=32, block="4k", size="1G", jobs=None, extra=(), latency_log=None):
    """One run of fio; `target` is a server (by NBD, or as its `fio_words` say), an NBD URI, or a path (io_uring, O_DIRECT).
    `jobs`: URIs, one job each."""
    command = ["fio", "--output-format=json", "--group_reporting=1", f"--rw={rw}", f"--bs={block}",
               f"--iodepth={depth}", f"--size={size}", "--randrepeat=0", "--norandommap=1", "--thread=1"]
    if seconds:
        command += ["--time_based=1", f"--runtime={seconds}"]
    if latency_log:
        command += [f"--write_lat_log={latency_log}", "--disable_slat=1", "--disable_clat=1"]
    command += list(extra)
    server = target if hasattr(target, "cpu_s") else None
    if jobs:
        for i, uri in enumerate(jobs):
            command += [f"--name=job{i}", "--ioengine=nbd", f"--uri={uri}"]
    elif hasattr(target, "fio_words"):
        command += ["--name=job", *target.fio_words(depth)]
    elif isinstance(target, Path):
        command += ["--name=job", "--ioengine=io_uring", "--direct=1", "--allow_file_create=0", f"--filename={target}"]
    else:
        command += ["--name=job", "--ioengine=nbd", f"--uri={server.uri if server else target}"]
    before, busy, begin = server.cpu_s() if server else 0, machine_busy_s(), time.monotonic()
    children = os.times()
    done = subprocess.run(command, capture_output=True, text=True)
    took, used_by_fio = time.monotonic() - begin, os.times()
    server_s = server.cpu_s() - before if server else 0
    if done.returncode != 0 or "{" not in done.stdout:
        raise RuntimeError(f"fio failed: {' '.join(command)}\n{done.stderr.strip()}\n{done.stdout.strip()[:2000]}")
    job = json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]
    sides = [job[side] for side in ("read", "write") if job[side]["total_ios"] > 0]
    if not sides or job["error"]:
        raise RuntimeError(f"fio did nothing, or met error {job['error']}: {' '.join(command)}")
    total = sum(side["total_ios"] for side in sides)
    main = max(sides, key=lambda side: side["total_ios"])
    fio_s = (used_by_fio.children_user + used_by_fio.children_system
             - children.children_user - children.children_system)
    return {
        "iops": sum(side["iops"] for side in sides),
        "mib_per_s": sum(side["bw_bytes"] for side in sides) / MIB,
        "mean_us": main["lat_ns"]["mean"] / 1000,
        "p99_us": main["clat_ns"].get("percentile", {}).get("99.000000", 0) / 1000,
        "max_ms": max(side["lat_ns"]["max"] for side in sides) / 1e6,
        "operations": total,
        "server_us": server_s / total * 1e6,
        "client_us": fio_s / total * 1e6,
        "client_s": fio_s,
        "sync_p99_us": job.get("sync", {}).get("lat_ns", {}).get("percentile", {}).get("99.000000", 0) / 1000,
        "others_percent": max(0, machine_busy_s() - busy - server_s - fio_s) / (took * os.cpu_count()) * 100,
        "seconds": took,
    }


def medians(runs):
    """Of several runs of one thing, the median of each figure."""
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def alternate(measures, times):
    """Runs each of `measures` (name -> function) in turn, `times` over, so that a change of the machine's mood meets all."""
    runs = {name: [] for name in measures}
    for _ in range(times):
        for name, measure in measures.items():
            runs[name].append(measure())
    return {name: medians(of_one) for name, of_one in runs.items()}


def per_second(log_path):
    """Completions, p50 and p99 (us) of each second, and the raw list of (ms, us), from fio's per-operation log."""
    points = []
    for line in open(log_path):
        fields = line.split(",", 2)
        points.append((int(fields[0]), int(fields[1]) / 1000))
    seconds = [[] for _ in range(max(ms for ms, _ in points) // 1000 + 1)]
    for ms, us in points:
        seconds[ms // 1000].append(us)
    def quantile(values, q):
        return sorted(values)[min(len(values) - 1, int(len(values) * q))] if values else None
    series = [{"completions": len(s), "p50_us": quantile(s, 0.5), "p99_us": quantile(s, 0.99)} for s in seconds]
    return series, points
