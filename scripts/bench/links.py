#!/usr/bin/env python3
"""Measures a link between two nodes over shaped virtual links, beside what iperf3 carries on each of them by itself.

    scripts/bench/links.py [--rounds N] [--seconds N] [--realtime]

Two network namespaces are joined by two veth pairs, shaped by tc (tbf). `io/examples/link.rs` runs at both ends, as one
thread each. Rounds alternate between the cases; medians are printed. With --realtime the ends and iperf3 run before
everything else on this machine: on one that is busy, both measure the scheduler otherwise. Needs root, ip, tc, iperf3
and openssl.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BINARY = ROOT / "target/release/examples/link"
A, B = f"link-a-{os.getpid()}", f"link-b-{os.getpid()}"
PORT = 7600


def run(*words, **options):
    return subprocess.run([str(word) for word in words], check=True, text=True, **options)


def device(side, link):
    return f"fb{side}{link}-{os.getpid() % 10000}"


def address(side, link):
    return f"10.77.{link}.{1 if side == 'a' else 2}"


class Stand:
    """The two hosts and the links between them."""

    def __init__(self, priority):
        self.priority = priority

    def __enter__(self):
        for name in (A, B):
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        for link in (1, 2):
            run("ip", "link", "add", device("a", link), "netns", A,
                "type", "veth", "peer", "name", device("b", link), "netns", B)
            for side, name in (("a", A), ("b", B)):
                run("ip", "-n", name, "addr", "add", f"{address(side, link)}/24", "dev", device(side, link))
                self.set_link(link, True, side)
        return self

    def __exit__(self, *_):
        for name in (A, B):
            subprocess.run(["ip", "netns", "del", name], check=False)

    def set_link(self, link, up, side="b"):
        run("ip", "-n", A if side == "a" else B, "link", "set", device(side, link), "up" if up else "down")

    def shape(self, rates):
        for link, rate in enumerate(rates, 1):
            for side, name in (("a", A), ("b", B)):
                run("tc", "-n", name, "qdisc", "replace", "dev", device(side, link),
                    "root", "tbf", "rate", f"{rate}mbit", "burst", "512kb", "latency", "20ms")

    def start(self, name, *words, env=None, **options):
        command = [*self.priority, "ip", "netns", "exec", name, *[str(word) for word in words]]
        return subprocess.Popen(command, text=True, env={**os.environ, **(env or {})}, **options)

    def iperf(self, link, seconds):
        """Mbit/s that plain TCP carries on one link alone."""
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        server = self.start(B, "iperf3", "-s", "-1", "-p", 5300, **quiet)
        time.sleep(0.3)
        client = self.start(A, "iperf3", "-c", address("b", link), "-p", 5300, "-t", seconds, "-J",
                            stdout=subprocess.PIPE)
        report = json.loads(client.communicate()[0])
        server.wait()
        return report["end"]["sum_received"]["bits_per_second"] / 1e6

    def link(self, links, seconds, content=None, compression="auto", tls=None, meanwhile=None, depth=None):
        """Lines of both ends, sender's first."""
        pairs = ",".join(f"{address('a', link)}={address('b', link)}:{PORT}" for link in links)
        back = f"{address('b', 1)}={address('a', 1)}:{PORT}"
        out = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}

        def env(node):
            return {"LINK_COMPRESSION": compression,
                    **({"LINK_TLS": f"{tls}/{node}"} if tls else {}),
                    **({"LINK_DEPTH": str(depth)} if depth else {})}

        receiver = self.start(B, BINARY, "beta", "alpha", f"0.0.0.0:{PORT}", back, seconds + 2, env=env("beta"), **out)
        time.sleep(0.3)
        words = ["alpha", "beta", f"0.0.0.0:{PORT}", pairs, "send", seconds, *([content] if content else [])]
        sender = self.start(A, BINARY, *words, env=env("alpha"), **out)
        if meanwhile:
            meanwhile()
        lines = [[json.loads(line) for line in end.communicate()[0].splitlines()] for end in (sender, receiver)]
        if any(line["damaged"] for line in lines[1]):
            sys.exit("a block arrived damaged")
        return lines


def steady(lines, skip_ms=1000):
    """Payload in Mbit/s while it flowed, without its beginning and end."""
    flowing = [line for line, after in zip(lines, lines[1:]) if after["delivered"] > line["delivered"] > 0]
    start = flowing[0]["ms"] + skip_ms
    inner = [line for line in flowing if start <= line["ms"]][:-1]
    first, last = inner[0], inner[-1]
    return (last["delivered"] - first["delivered"]) * 8e-3 / (last["ms"] - first["ms"])


def certificates(folder):
    """An authority and a certificate for each node."""
    def openssl(*words):
        run("openssl", *words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    openssl("req", "-x509", *key, "-subj", "/CN=bench", "-keyout", folder / "ca.key", "-out", folder / "ca.pem")
    for node in ("alpha", "beta"):
        place = folder / node
        place.mkdir()
        openssl("req", "-x509", *key, "-subj", f"/CN={node}", "-addext", f"subjectAltName=DNS:{node}",
                "-addext", "basicConstraints=critical,CA:FALSE", "-CA", folder / "ca.pem", "-CAkey", folder / "ca.key",
                "-keyout", place / "key.pem", "-out", place / "cert.pem")
        (place / "ca.pem").write_bytes((folder / "ca.pem").read_bytes())


def compressible(folder):
    """What a build writes: sources and object files, of this repository."""
    path = folder / "content"
    with path.open("wb") as out:
        for source in sorted(ROOT.glob("*/src/**/*.rs")):
            out.write(source.read_bytes())
        objects = sorted((ROOT / "target").glob("*/deps/libforebay_*.rlib"), key=lambda file: file.stat().st_size)
        for built in objects:
            if out.tell() < 64 << 20:
                out.write(built.read_bytes()[: 16 << 20])
    return path


class Cut:
    """Takes one of two links away, and gives it back."""

    def __init__(self, stand):
        self.stand = stand

    def __call__(self):
        time.sleep(2.5)
        self.stand.set_link(2, False)
        time.sleep(2)
        self.stand.set_link(2, True)


def recovery_ms(lines, full):
    """From the moment when two links were there again until 95 % of their speed was."""
    rates = [((b["delivered"] - a["delivered"]) * 8e-3 / (b["ms"] - a["ms"]), b["ms"])
             for a, b in zip(lines, lines[1:]) if b["ms"] > a["ms"]]
    low = [at for rate, at in rates if 0 < rate < 0.7 * full]
    cut = min(at for at in low if at > 1500)
    back = next(at for rate, at in rates if at > cut + 2000 and rate > 0.95 * full)
    return back - cut - 2000


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--seconds", type=int, default=8)
    options.add_argument("--realtime", action="store_true")
    options = options.parse_args()
    run("cargo", "build", "--release", "--quiet", "-j2", "-p", "forebay-io", "--example", "link", cwd=ROOT)
    found = {}

    def note(name, value):
        found.setdefault(name, []).append(value)
        print(f"{name}: {value:.1f}", file=sys.stderr)

    seconds = options.seconds
    priority = ["chrt", "-f", "1"] if options.realtime else []
    with tempfile.TemporaryDirectory() as folder, Stand(priority) as stand:
        folder = Path(folder)
        certificates(folder)
        content = compressible(folder)
        for _ in range(options.rounds):
            stand.shape([2500, 2500])
            note("2500 alone, iperf3, Mbit/s", stand.iperf(1, 4))
            note("2500 alone, link, Mbit/s", steady(stand.link([1], seconds)[1]))
            both = steady(stand.link([1, 2], seconds)[1])
            note("2500 + 2500, link, Mbit/s", both)
            sender, receiver = stand.link([1, 2], seconds, tls=folder)
            note("2500 + 2500, link under TLS, Mbit/s", steady(receiver))
            note("2500 + 2500, link under TLS, sender's CPU, %", sender[-1]["cpu_ms"] / sender[-1]["ms"] * 100)
            lines = stand.link([1, 2], max(seconds, 9), meanwhile=Cut(stand))[1]
            note("one of two cut, longest stall, ms", lines[-1]["longest_gap_ms"])
            note("the link back, full speed after, ms", recovery_ms(lines, both))
            for depth in (1, 16):
                lines = stand.link([1], 4, depth=depth)[0]
                answers = lines[-1]["answers"] - lines[5]["answers"]
                passed = lines[-1]["ms"] - lines[5]["ms"]
                note(f"4 KiB and its answer, {depth} at a time, us", depth * passed * 1000 / answers)
            stand.shape([2500, 1000])
            note("1000 alone, iperf3, Mbit/s", stand.iperf(2, 4))
            note("2500 + 1000, link, Mbit/s", steady(stand.link([1, 2], seconds)[1]))
            stand.shape([1000, 1000])
            for kind, file in (("build output", content), ("noise", None)):
                for compression in ("off", "auto"):
                    sender, receiver = stand.link([1], seconds, content=file, compression=compression)
                    note(f"1000, {kind}, compression {compression}, MB/s", steady(receiver) / 8)
                    last = sender[-1]
                    if last["saved"]:
                        saved = last["saved"] / 1e8
                        note(f"1000, {kind}, ratio", last["ratio"])
                        note(f"1000, {kind}, cores for each 100 MB/s saved", last["pack_cpu_ms"] / 1000 / saved)
    print(f"medians of {options.rounds}" + (", ends and iperf3 before everything else" if priority else ""))
    for name, values in found.items():
        spread = f"{min(values):.2f} to {max(values):.2f}"
        print(f"{name:55} {statistics.median(values):10.2f}   ({spread})")


if __name__ == "__main__":
    main()
