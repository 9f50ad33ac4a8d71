"""Replicated stores of other projects, as small as they can be run on one machine: Ceph and GlusterFS on its loopback.

Both keep their two copies in memory: Ceph in its memstore, GlusterFS on tmpfs. What does not come up raises an error that says why.
"""

import os
import shutil
import subprocess
import uuid

from stand import MIB, cpu_s, wait_until


def command(what, *words, **options):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=60, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{what}: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout


def demand(*tools):
    absent = [tool for tool in tools if not shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")]
    if absent:
        raise RuntimeError(f"{' and '.join(absent)} must be installed by hand: nothing else here needs it")


class Ceph:
    """One monitor and two stores in memory, without authentication and manager; images are cached nowhere."""

    name = "Ceph, memstore, 2 copies"

    def __init__(self, stand, size):
        demand("ceph-mon", "ceph-osd", "ceph", "rbd", "monmaptool")
        self.folder, self.processes = stand.unique("ceph"), []
        self.folder.mkdir()
        self.config = self.folder / "ceph.conf"
        self.environment = {**os.environ, "CEPH_CONF": str(self.config)}
        try:
            self.begin(size)
        except BaseException:
            self.close()
            raise

    def begin(self, size):
        cluster, place = uuid.uuid4(), self.folder
        self.config.write_text("\n".join([
            "[global]", f"fsid = {cluster}", "mon host = [v2:127.0.0.1:41300/0,v1:127.0.0.1:41301/0]", "public addr = 127.0.0.1",
            "cluster addr = 127.0.0.1", "auth cluster required = none", "auth service required = none",
            "auth client required = none", "osd pool default size = 2", "osd pool default min size = 1",
            "mon allow pool size one = true", "osd crush chooseleaf type = 0", "osd objectstore = memstore",
            "memstore device bytes = 2147483648", f"run dir = {place}", f"log file = {place}/$name.log",
            f"pid file = {place}/$name.pid", f"admin socket = {place}/$name.$pid.asok", f"mon data = {place}/mon.$id",
            f"osd data = {place}/osd.$id", f"crash dir = {place}/crash", "osd pool default pg autoscale mode = off",
            "mon max pg per osd = 1000", "[client]", "rbd cache = false", "admin socket =", "log file =", ""]))
        self.ceph("monmaptool", "--create", "--clobber", "--fsid", cluster, "--addv", "a", "[v2:127.0.0.1:41300,v1:127.0.0.1:41301]",
                  place / "monmap")
        (place / "mon.a").mkdir()
        self.ceph("ceph-mon", "-i", "a", "--mkfs", "--monmap", place / "monmap")
        self.start("ceph-mon", "-i", "a")
        for number in range(2):
            store = uuid.uuid4()
            self.ceph("ceph", "osd", "new", store, number)
            (place / f"osd.{number}").mkdir()
            self.ceph("ceph-osd", "-i", number, "--mkfs", "--osd-uuid", store)
            self.ceph("ceph", "osd", "crush", "add", f"osd.{number}", "1.0", "root=default", f"host=h{number}")
            self.start("ceph-osd", "-i", number)
        self.ceph("ceph", "osd", "pool", "create", "rbd", 32, 32)
        self.ceph("ceph", "osd", "pool", "application", "enable", "rbd", "rbd")
        wait_until("both stores of Ceph", lambda: "2 up" in self.ceph("ceph", "osd", "stat"), 60, 0.5)
        self.ceph("rbd", "create", "image", "--size", f"{size // MIB}M", "--image-feature", "layering,exclusive-lock")

    def ceph(self, *words):
        return command(" ".join(map(str, words[:4])), *words, env=self.environment)

    def start(self, *words):
        log = open(self.folder / "output", "ab")
        self.processes.append(subprocess.Popen([*map(str, words), "-f"], env=self.environment, stdout=log, stderr=log))

    def fio_words(self, _depth):
        os.environ["CEPH_CONF"] = str(self.config)  # the client's library reads it
        return ["--ioengine=rbd", "--clientname=admin", "--pool=rbd", "--rbdname=image"]

    def cpu_s(self):
        return sum(cpu_s(process.pid) for process in self.processes)

    def close(self):
        for process in reversed(self.processes):
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Gluster:
    """One glusterd with a private folder, and a volume of two bricks on tmpfs; nothing is acknowledged before both have it."""

    name = "GlusterFS, replica 2"
    address = "127.0.0.2"

    def __init__(self, stand, _size):
        demand("glusterd", "gluster", "glusterfsd")
        self.folder, self.bricks = stand.unique("gluster"), stand.memory / "bricks"
        for folder in (self.folder / "work", self.folder / "run", self.bricks / "a", self.bricks / "b"):
            folder.mkdir(parents=True)
        self.process = None
        try:
            self.begin()
        except BaseException:
            self.close()
            raise

    def begin(self):
        options = [f"working-directory {self.folder}/work", f"run-directory {self.folder}/run", "transport-type socket",
                   f"transport.socket.bind-address {self.address}", "transport.socket.listen-port 24007", "ping-timeout 0",
                   "event-threads 1", "base-port 49152", "max-port 60999"]
        lines = ["volume management", " type mgmt/glusterd", *(f" option {option}" for option in options), "end-volume", ""]
        (self.folder / "glusterd.vol").write_text("\n".join(lines))
        self.process = subprocess.Popen(["glusterd", "-N", "-f", self.folder / "glusterd.vol", "-p", self.folder / "pid",
                                         "-l", self.folder / "log"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until("glusterd to answer", lambda: self.try_gluster("volume", "list"), 30, 0.5)
        bricks = [f"{self.address}:{self.bricks}/{side}/brick" for side in "ab"]
        self.gluster("volume", "create", "bench", "replica", "2", *bricks, "force")
        self.gluster("volume", "set", "bench", "performance.write-behind", "off")
        self.gluster("volume", "start", "bench")
        wait_until("both bricks", lambda: self.gluster("volume", "status", "bench").count(" Y ") >= 2, 30, 0.5)

    def gluster(self, *words):
        return command(f"gluster {' '.join(words[:3])}", "gluster", "--mode=script", *words)

    def try_gluster(self, *words):
        try:
            self.gluster(*words)
        except (RuntimeError, subprocess.TimeoutExpired):
            return False
        return True

    def fio_words(self, depth):
        engine = "gfapi" if depth == 1 else "gfapi_async"
        return [f"--ioengine={engine}", "--volume=bench", f"--brick={self.address}", "--filename=file", "--direct=1"]

    def pids(self):
        """glusterd and the bricks that it has started."""
        files = [self.folder / "pid", *(self.folder / "run").rglob("*.pid")]
        return {int(text) for text in (file.read_text().strip() for file in files if file.exists()) if text}

    def cpu_s(self):
        return sum(cpu_s(pid) for pid in self.pids() if os.path.exists(f"/proc/{pid}"))

    def close(self):
        if self.process:
            self.try_gluster("volume", "stop", "bench", "force")
            for pid in self.pids():
                if os.path.exists(f"/proc/{pid}"):
                    os.kill(pid, 9)
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self.bricks, ignore_errors=True)
