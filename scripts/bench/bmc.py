"""A baseboard management controller for each node of a cluster: OpenIPMI's simulator, which switches the node's daemon off as it would
a machine.

Invariants:
- Every BMC runs on the witness host, where all nodes reach it, and ends before the cluster does.
- A daemon has a machine of its own, as far as it can tell: no lock of its kernel proves anything about the others'.
"""

import os
import socket
import subprocess

from stand import wait_until

TOOLS = ["ipmi_sim", "ipmitool", "fence_ipmilan", "unshare"]
PASSWORD = "open-sesame"
PORT = 6230  # of the first one
# What a BMC runs to look at its machine's power, and to change it. A killed process that nobody has buried yet is none.
CHASSIS = r"""#!/bin/sh
cd "$(dirname "$0")" || exit 1
operation=$2
shift 2
alive() { [ -e host ] && grep -qs ') [^ZX] ' "/proc/$(cat host)/stat"; }
case $operation in
get) for name in "$@"; do
        case $name in power) if alive; then echo power:1; else echo power:0; fi ;; *) echo "$name:0" ;; esac
    done ;;
set) while [ $# -ge 2 ]; do
        case $1:$2 in power:0) ! alive || kill -9 "$(cat host)" ;; esac
        shift 2
    done ;;
esac
exit 0
"""
# Mounted over what says which machine this is, and in which boot.
ON_A_MACHINE = 'mount --bind "$1" /etc/machine-id && mount --bind "$2" /proc/sys/kernel/random/boot_id && shift 2 && exec "$@"'


class Machines:
    """One for each node of a cluster."""

    def __init__(self, cluster):
        self.folders = [cluster.folder / f"machine{number}" for number in range(cluster.count)]
        self.address = cluster.hosts.address(cluster.hosts.count - 1)
        self.password = cluster.folder / "bmc-password"
        self.password.write_text(PASSWORD + "\n")
        self.password.chmod(0o600)
        self.processes = []
        for number, folder in enumerate(self.folders):
            self.processes.append(self.start(cluster, number, folder))
            wait_until("a BMC to listen", lambda at=number: cluster.hosts.run_on(cluster.hosts.count - 1, lambda: self.listens(at)), 20)

    def start(self, cluster, number, folder):
        folder.mkdir()
        (folder / "state").mkdir()
        (folder / "machine-id").write_text(f"{0xfeed0000 + number:032x}\n")
        (folder / "boot-id").write_text(f"00000001-0000-4000-8000-{number:012x}\n")
        (folder / "chassis").write_text(CHASSIS)
        (folder / "chassis").chmod(0o755)
        ways = "none md2 md5 straight"
        (folder / "lan.conf").write_text(
            f'name "forebay-bench"\nstartlan 1\naddr {self.address} {PORT + number}\npriv_limit admin\n'
            + "".join(f"allowed_auths_{level} {ways}\n" for level in ("callback", "user", "operator", "admin"))
            + 'guid a123456789abcdefa123456789abcdef\nendlan\n'
            + f'user 1 true "" "" user 10 {ways}\nuser 2 true "forebay" "{PASSWORD}" admin 10 {ways}\n'
            + f'chassis_control "{folder}/chassis 0x20"\n')
        (folder / "sim.emu").write_text(
            "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr\nmc_enable 0x20\n")
        words = ["ipmi_sim", "-c", folder / "lan.conf", "-f", folder / "sim.emu", "-s", folder / "state", "-n"]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return subprocess.Popen(cluster.hosts.within(cluster.hosts.count - 1, *words), **quiet)

    def listens(self, number):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind((self.address, PORT + number))
            except OSError:
                return True
        return False

    def tables(self, own, names):
        """Of a node's config: how it has each of the others switched off."""
        return "".join(
            f'[[fence]]\nnode = "{name}"\nagent = "fence_ipmilan"\noptions = {{ ip = "{self.address}", ipport = "{PORT + number}", '
            f'lanplus = "1", cipher = "3", username = "forebay" }}\noption_files = {{ password = "{self.password}" }}\n'
            for number, name in enumerate(names) if number != own)

    def command(self, number, words):
        """A node's command as it runs on its machine."""
        folder = self.folders[number]
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c", ON_A_MACHINE, "sh",
                folder / "machine-id", folder / "boot-id", *words]

    def stands_for(self, number, pid):
        """Its power is the life of this process."""
        place = self.folders[number] / "host"
        place.with_suffix(".new").write_text(f"{pid}\n")
        os.replace(place.with_suffix(".new"), place)

    def close(self):
        for process in self.processes:
            process.kill()
            process.wait()
