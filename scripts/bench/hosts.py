"""Hosts as network namespaces, the wires between them, and a cluster of daemons on them.

Invariants:
- What is made here is removed here: namespaces are named after this process, and everything in them ends before they do.
- Every contender's bytes between two hosts go over the same wires: veth pairs on one bridge for each link.
"""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

from bmc import Machines
from stand import BINARY, Server, cpu_s, first_read, wait_until

NAMES = ["alpha", "beta", "gamma"]
TOOLS = ["ip", "tc", "etcd"]


def missing(*tools):
    """What is not here to measure several nodes; nothing: all is."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    absent = [tool for tool in [*TOOLS, *tools] if not shutil.which(tool)]
    return f"there is no {', no '.join(absent)} (scripts/setup.sh)" if absent else ""


def tool(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr.strip()}")


def enter_network(descriptor):
    """This thread's network is another one from now on."""
    clone_newnet, libc = 0x40000000, ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, clone_newnet) != 0:
        raise OSError(ctypes.get_errno(), "enter a network namespace")


class Hosts:
    """So many hosts with so many links each; the last host is the witness, where etcd runs."""

    networks = 0

    def __init__(self, count, links):
        self.count, self.links = count + 1, links
        Hosts.networks += 1
        self.stem = f"fb-{os.getpid()}-{Hosts.networks}"
        self.switch = f"{self.stem}-switch"
        self.made = []
        try:
            self.make()
        except BaseException:
            self.close()
            raise

    def make(self):
        self.namespace(self.switch)
        for link in range(self.links):
            tool("ip", "-n", self.switch, "link", "add", f"bridge{link}", "type", "bridge")
            tool("ip", "-n", self.switch, "link", "set", f"bridge{link}", "up")
        for host in range(self.count):
            self.namespace(self.name(host))
            for link in range(self.links):
                port = self.port(host, link)
                tool("ip", "-n", self.switch, "link", "add", port, "type", "veth", "peer", "name", f"link{link}",
                     "netns", self.name(host))
                tool("ip", "-n", self.switch, "link", "set", port, "master", f"bridge{link}", "up")
                tool("ip", "-n", self.name(host), "address", "add", f"{self.address(host, link)}/24", "dev", f"link{link}")
                tool("ip", "-n", self.name(host), "link", "set", f"link{link}", "up")
        self.await_ports()

    def namespace(self, name):
        tool("ip", "netns", "add", name)
        self.made.append(name)
        tool("ip", "-n", name, "link", "set", "lo", "up")

    def await_ports(self):
        """A switch passes nothing on until it has noticed the carrier."""
        def forwarding():
            shown = subprocess.run(["ip", "-n", self.switch, "-d", "-o", "link"], capture_output=True, text=True).stdout
            ports = [line for line in shown.splitlines() if "bridge_slave" in line and ",UP" in line]
            return all("state forwarding" in line and "LOWER_UP" in line for line in ports)
        wait_until("the switch to pass frames on", forwarding, 20)

    def name(self, host):
        return f"{self.stem}-{host}"

    @staticmethod
    def port(host, link):
        return f"h{host}l{link}"

    @staticmethod
    def address(host, link=0):
        return f"10.78.{link}.{host + 1}"

    def within(self, host, *words):
        """A command as it runs on a host."""
        return ["ip", "netns", "exec", self.name(host), *map(str, words)]

    def run_on(self, host, work):
        """Runs a function in a thread whose sockets belong to a host; gives what it returns."""
        found = []

        def body():
            with open(f"/run/netns/{self.name(host)}") as place:
                enter_network(place.fileno())
            found.append(work())
        thread = threading.Thread(target=body)
        thread.start()
        thread.join()
        if not found:
            raise RuntimeError(f"what ran on host {host} failed")
        return found[0]

    def shape(self, rates):
        """Mbit/s of each link, on every host and both ways; None: what the machine can do."""
        for link, rate in enumerate(rates):
            for host in range(self.count):
                for place, device in ((self.switch, self.port(host, link)), (self.name(host), f"link{link}")):
                    subprocess.run(["tc", "-n", place, "qdisc", "del", "dev", device, "root"], capture_output=True)
                    if rate:
                        tool("tc", "-n", place, "qdisc", "add", "dev", device, "root", "tbf", "rate", f"{rate}mbit",
                             "burst", "512kb", "latency", "20ms")

    def acknowledge_at_once(self):
        """TCP's acknowledgements are not delayed on any link. A program that sends a header and waits for the acknowledgement before
        the rest, as QEMU's NBD client does, would stand still for 40 ms now and then."""
        for host in range(self.count):
            for link in range(self.links):
                tool("ip", "-n", self.name(host), "route", "change", f"10.78.{link}.0/24", "dev", f"link{link}", "quickack", "1")

    def set_cable(self, host, link, plugged):
        tool("ip", "-n", self.switch, "link", "set", self.port(host, link), "up" if plugged else "down")

    def iperf(self, link, seconds, streams=1):
        """Mbit/s that plain TCP carries on one link from the first host to the second."""
        port = str(5300 + link)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        server = subprocess.Popen(self.within(1, "iperf3", "-s", "-1", "-p", port), **quiet)
        time.sleep(0.3)
        words = ["iperf3", "-c", self.address(1, link), "-p", port, "-t", seconds, "-P", streams, "-O", "1", "-J"]
        done = subprocess.run(self.within(0, *words), capture_output=True, text=True, check=True)
        server.wait(20)
        return json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"] / 1e6

    def round_trip_us(self, request=4096 + 150, answer=150, times=20_000):
        """Mean time of a message and its answer by TCP from the first host to the second: two processes that block, each on a core of
        its own, as hosts have them (on one core both are cheaper by two wake-ups of a core that sleeps)."""
        cores = sorted(os.sched_getaffinity(0))
        door = self.run_on(1, lambda: socket.create_server((self.address(1), 5400)))

        def exactly(end, view, count):
            got = 0
            while got < count:
                got += end.recv_into(view[got:], count - got)

        def answerer():
            end, _ = door.accept()
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            view, words = memoryview(bytearray(request)), bytes(answer)
            for _ in range(times):
                exactly(end, view, request)
                end.sendall(words)
        # A process of its own: two threads of one Python share its lock.
        child = os.fork()
        if child == 0:
            try:
                os.sched_setaffinity(0, {cores[-1]})
                answerer()
            finally:
                os._exit(0)

        def asker():
            os.sched_setaffinity(0, {cores[0]})
            end = socket.create_connection((self.address(1), 5400))
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            view, words = memoryview(bytearray(answer)), bytes(request)
            begin = time.perf_counter()
            for _ in range(times):
                end.sendall(words)
                exactly(end, view, answer)
            return (time.perf_counter() - begin) / times * 1e6
        try:
            return self.run_on(0, asker)
        finally:
            door.close()
            os.waitpid(child, 0)

    def close(self):
        for name in reversed(self.made):
            subprocess.run(["ip", "netns", "del", name], check=False)


class Node(Server):
    """A daemon of a cluster."""

    def __init__(self, cluster, number):
        self.number, self.folder = number, cluster.folder / NAMES[number]
        self.api = self.folder / "api.sock"
        for left in (self.folder / "nbd.sock", self.api):
            left.unlink(missing_ok=True)
        words = [BINARY, "serve", "--config", self.folder / "node.toml"]
        if cluster.machines:
            words = cluster.machines.command(number, words)
        command = cluster.hosts.within(number, *words)
        super().__init__(NAMES[number], command, self.folder / "nbd.sock", "vm1", self.folder / "log",
                         {"RUNTIME_DIRECTORY": str(cluster.memory)})

    def call(self, *words):
        """A command to the daemon; its answer, or an error."""
        done = subprocess.run([BINARY, *words, "--api", self.api, "--json"], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"forebay {' '.join(map(str, words))}: {done.stderr.strip()}")
        return json.loads(done.stdout) if done.stdout.strip() else None

    def asked(self, *words):
        """The same; nothing on an error, as of a daemon that is not there yet."""
        with contextlib.suppress(RuntimeError, OSError, json.JSONDecodeError):
            return self.call(*words)
        return None

    def show(self, _volume=None):
        return self.call("volume", "show", "vm1")

    def serves(self):
        return first_read(self.socket, "vm1")


class Cluster:
    """Nodes on hosts, an etcd beside them, and one volume `vm1` whose log two of them keep. `fenced`: each is on a machine of its own,
    which the others can switch off."""

    def __init__(self, stand, hosts, nodes=2, security="plain", settings=(), fenced=False):
        self.hosts, self.count = hosts, nodes
        self.folder, self.memory = stand.unique("cluster"), stand.memory
        self.folder.mkdir()
        self.nodes = [None] * nodes
        self.machines = None
        self.etcd = self.start_etcd()
        try:
            if fenced:
                self.machines = Machines(self)
            self.enrol(security, settings)
            for number in range(nodes):
                self.start(number)
            wait_until("all channels to be up", self.channels_are_up, 60, 0.05)
        except BaseException:
            self.close()
            raise

    def start_etcd(self):
        address = self.hosts.address(self.hosts.count - 1)
        self.url = f"http://{address}:2379"
        words = ["etcd", "--name", "m0", "--data-dir", self.folder / "etcd", "--listen-client-urls", self.url,
                 "--advertise-client-urls", self.url, "--listen-peer-urls", f"http://{address}:2380",
                 "--initial-advertise-peer-urls", f"http://{address}:2380", "--initial-cluster", f"m0=http://{address}:2380",
                 "--log-level", "warn"]
        log = open(self.folder / "etcd.log", "ab")
        return subprocess.Popen(self.hosts.within(self.hosts.count - 1, *words), stdout=log, stderr=log)

    def enrol(self, security, settings):
        authority = self.folder / "authority"
        tool(BINARY, "node", "init-ca", "--cluster", "bench", "--authority", authority)
        tool(BINARY, "node", "enrol", *NAMES[:self.count], "--authority", authority, "--to", self.folder)
        for number in range(self.count):
            place = self.folder / NAMES[number]
            place.mkdir()
            links = "".join(f'[[link]]\nown = "{self.hosts.address(number, link)}"\n' for link in range(self.hosts.links))
            (place / "node.toml").write_text(
                f'[node]\nstate = "{place}/state"\nshards = 1\n[listen]\nnbd = ["unix:{place}/nbd.sock"]\n'
                f'api = "{place}/api.sock"\nhttp = "off"\n[backings]\nallow = ["slow:", "/dev/shm", "{self.folder.parent}"]\n[cluster]\nidentity = "{self.folder}/{NAMES[number]}.identity.toml"\n'
                f'etcd = ["{self.url}"]\nfault_domain = "rack-{number}"\nsecurity = "{security}"\n'
                + "".join(f"{line}\n" for line in settings) + links
                + (self.machines.tables(number, NAMES[:self.count]) if self.machines else ""))

    def start(self, number):
        self.nodes[number] = Node(self, number)
        if self.machines:
            self.machines.stands_for(number, self.nodes[number].pid)
        wait_until(f"{NAMES[number]} to answer", lambda: self.nodes[number].asked("status"), 60, 0.05)

    def channels_are_up(self):
        def up(node):
            others = node.asked("node", "list") or []
            return sum(channel["phase"] == "up" for other in others for channel in other.get("channels") or [])
        return all(up(node) == (self.count - 1) * self.hosts.links for node in self.nodes if node)

    def create(self, backing, size, tier_size, peers=1):
        """The volume, on the first node; when this returns, all its logs stand for each acknowledgement."""
        self.peers = peers
        self.nodes[0].call("volume", "create", "vm1", "--backing", str(backing), "--size", size, "--create", "--policy", "back",
                           "--peers", str(peers), "--tier", "memory", "--tier-size", tier_size)
        self.await_copies(0)
        return self.nodes[0]

    def await_copies(self, owner, timeout_s=60):
        def all_logs():
            shown = self.nodes[owner].asked("volume", "show", "vm1")
            members = [member for member in shown["cluster"]["members"] if member["role"] != "learner"] if shown else []
            return len(members) == self.peers + 1 and shown["policy"]["effective"] == "back" and self.nodes[owner].serves()
        wait_until(f"{self.peers + 1} logs", all_logs, timeout_s, 0.05)

    @property
    def uri(self):
        """Of the volume at its first owner."""
        return self.nodes[0].uri

    def kill(self, number):
        node, self.nodes[number] = self.nodes[number], None
        node.process.send_signal(signal.SIGKILL)
        node.process.wait()

    def cpu_s(self):
        return sum(cpu_s(node.pid) for node in self.nodes if node)

    def close(self):
        for number, node in enumerate(self.nodes):
            if node:
                self.kill(number)
        if self.machines:
            self.machines.close()
        self.etcd.kill()
        self.etcd.wait()
        for left in self.memory.glob("memory/*"):
            left.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)


class Mirror:
    """QEMU's active mirror: writes go to a local file and, before they are acknowledged, to another host by NBD over TCP; or, without a
    wire, to another process of the same host by a unix socket."""

    def __init__(self, stand, hosts, size, wire=True):
        self.folder = stand.unique("mirror")
        self.folder.mkdir()
        self.socket, self.export = self.folder / "m.sock", "m"
        self.images = [stand.memory / f"{self.folder.name}-{side}.img" for side in "ab"]
        for image in self.images:
            image.write_bytes(b"")
            os.truncate(image, size)
        address = hosts.address(1)
        common = {"stdout": open(self.folder / "log", "ab"), "stderr": subprocess.STDOUT}
        served = ["qemu-nbd", "--format=raw", "--cache=writeback", "--aio=threads", "--persistent", "--shared=2", self.images[1]]
        if wire:
            hosts.acknowledge_at_once()
            self.remote = subprocess.Popen(hosts.within(1, *served, "--bind", address, "--port", "10809"), **common)
            wait_until("qemu-nbd to listen", lambda: hosts.run_on(0, lambda: answers(address, 10809)), 20)
            there = f"server.type=inet,server.host={address},server.port=10809"
        else:
            there = self.folder / "b.sock"
            self.remote = subprocess.Popen(hosts.within(0, *served, "--socket", there), **common)
            wait_until("qemu-nbd to listen", lambda: first_read(there, ""), 20)
            there = f"server.type=unix,server.path={there}"
        blockdev = (f"driver=file,node-name=fa,filename={self.images[0]},aio=threads", "driver=raw,node-name=la,file=fa",
                    f"driver=nbd,node-name=rb,{there}")
        words = [word for device in blockdev for word in ("--blockdev", device)]
        self.local = subprocess.Popen(
            hosts.within(0, "qemu-storage-daemon", *words, "--nbd-server", f"addr.type=unix,addr.path={self.socket}",
                         "--export", "type=nbd,id=e,node-name=la,name=m,writable=on",
                         "--chardev", "stdio,id=m", "--monitor", "chardev=m"),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=common["stdout"], text=True)
        mirror = {"job-id": "j", "device": "la", "target": "rb", "sync": "none", "copy-mode": "write-blocking"}
        for execute, arguments in (("qmp_capabilities", {}), ("blockdev-mirror", mirror)):
            self.local.stdin.write(json.dumps({"execute": execute, "arguments": arguments}) + "\n")
        self.local.stdin.flush()
        for line in self.local.stdout:
            said = json.loads(line)
            if "error" in said:
                raise RuntimeError(f"qemu-storage-daemon: {said['error']}")
            if said.get("event") == "BLOCK_JOB_READY":
                break
        wait_until("the mirror to serve", lambda: first_read(self.socket, "m"), 20)

    @property
    def uri(self):
        return f"nbd+unix:///{self.export}?socket={self.socket}"

    def cpu_s(self):
        return cpu_s(self.local.pid) + cpu_s(self.remote.pid)

    def close(self):
        for process in (self.local, self.remote):
            process.kill()
            process.wait()
        for image in self.images:
            image.unlink()
        shutil.rmtree(self.folder, ignore_errors=True)


def answers(address, port):
    with contextlib.suppress(OSError), socket.create_connection((address, port), 1):
        return True
    return False
