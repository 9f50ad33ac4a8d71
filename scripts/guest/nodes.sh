#!/usr/bin/env bash
# A guest with two or three NUMA nodes, and interfaces and NVMe disks at both sockets. It runs a script, and leaves what that has
# put into /out in the folder OUT/back, its words in OUT/console.log, the last of them `guest: DONE`. tests/src/nodes.rs runs it.
#
#   node 0   CPUs 0-1   eth0 (virtio, 10.1.0.0/24)   serial number NV0   below bus 0x40
#   node 1   CPUs 2-3   eth1 (e1000e, 10.2.0.0/24)   serial number NV1   below bus 0x80
#   node 2   memory alone, where asked for
#
# usage: nodes.sh OUT FOREBAY_BINARY SCRIPT [NAME=VALUE...]
#   nodes=2|3  node_mib=512 (of nodes 0 and 1)  far_mib=128 (of node 2)  disk_mib=256  seconds=900
#   bmc=ADDRESS:PORT   of a BMC's simulator, by its line to virtual machines (ipmi_sim: serial ... codec VM)
#   with=PROGRAM       into /bin, with its libraries; as often as needed
#   module=NAME        of the kernel, loaded after those of the devices; as often as needed
set -euo pipefail

out=$1 binary=$2 script=$3
shift 3
nodes=2 node_mib=512 far_mib=128 disk_mib=256 bmc='' seconds=900
programs=() more_modules=()
for assignment in "$@"; do
    case $assignment in
    nodes=[23] | node_mib=* | far_mib=* | disk_mib=* | bmc=* | seconds=*) declare "$assignment" ;;
    with=*) programs+=("${assignment#*=}") ;;
    module=*) more_modules+=("${assignment#*=}") ;;
    *) echo "nodes.sh: unknown parameter $assignment" >&2; exit 2 ;;
    esac
done
# shellcheck source=scripts/guest/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
fetch_kernel
# The one for clouds knows no e1000e and no BMC.
use_machine_kernel
mkdir -p "$out/back"
# shellcheck disable=SC2046 # the applets are words
new_root "$out/root" $("$cache/x/bin/busybox" --list | grep -vx busybox)
mkdir -p "$root"/{etc,tmp,run,out,var/lib}
install_binary "$binary" forebay
# Symbols would make the guest's boot under TCG longer.
strip "$root/bin/forebay"
for program in "${programs[@]}"; do install_binary "$program" "$(basename "$program")"; done
cp "$script" "$root/script"
with_modules crct10dif_common crct10dif_generic crc-t10dif crc64 crc64_rocksoft_generic crc64-rocksoft t10-pi nvme-core nvme virtio_ring virtio_pci_modern_dev \
    virtio_pci_legacy_dev virtio virtio_pci failover net_failover virtio_net e1000e
machine=(-machine q35,hmat=on -smp 4,sockets=2,cores=2,threads=1 -m $((node_mib * 2 + (nodes == 3 ? far_mib : 0)))M)
for node in 0 1; do
    machine+=(-object memory-backend-ram,id=memory$node,size="${node_mib}M"
        -numa node,nodeid=$node,cpus=$((node * 2))-$((node * 2 + 1)),memdev=memory$node,initiator=$node)
done
# What the firmware says of memory: bandwidth (MB/s) and latency (ns) to the own and to the other socket.
access() { # initiator, target, latency, megabytes a second
    local entry="hmat-lb,initiator=$1,target=$2,hierarchy=memory,data-type=access"
    machine+=(-numa "$entry-latency,latency=$3" -numa "$entry-bandwidth,bandwidth=$4M")
}
machine+=(-numa dist,src=0,dst=1,val=21)
if [ "$nodes" = 3 ]; then
    machine+=(-object memory-backend-ram,id=memory2,size="${far_mib}M" -numa node,nodeid=2,memdev=memory2,initiator=1
        -numa dist,src=0,dst=2,val=31 -numa dist,src=1,dst=2,val=24)
fi
access 0 0 80 46000
access 0 1 140 6000
access 1 0 140 6000
access 1 1 80 46000
if [ "$nodes" = 3 ]; then
    access 0 2 300 4000
    access 1 2 250 10000
fi
# A host bridge at each socket; ports of several speeds and widths, in which QEMU's devices train at 2.5 GT/s x1.
port() { # name, bridge, number, GT/s, lanes
    machine+=(-device "pcie-root-port,id=$1,bus=$2,chassis=$3,slot=$3,x-speed=$4,x-width=$5")
}
machine+=(-device pxb-pcie,id=bridge0,bus=pcie.0,bus_nr=64,numa_node=0 -device pxb-pcie,id=bridge1,bus=pcie.0,bus_nr=128,numa_node=1)
port nic0 bridge0 1 16 16
port disk0 bridge0 2 8 4
port nic1 bridge1 3 5 8
port disk1 bridge1 4 8 4
machine+=(-netdev user,id=net0,net=10.1.0.0/24 -device virtio-net-pci,netdev=net0,bus=nic0
    -netdev user,id=net1,net=10.2.0.0/24 -device e1000e,netdev=net1,bus=nic1)
for node in 0 1; do
    machine+=(-drive "file=$out/disk$node,format=raw,if=none,id=drive$node,cache=unsafe" -device "nvme,drive=drive$node,serial=NV$node,bus=disk$node")
done
if [ -n "$bmc" ]; then
    with_modules ipmi_msghandler ipmi_devintf ipmi_si
    machine+=(-chardev "socket,id=board,host=${bmc%:*},port=${bmc#*:},reconnect=1"
        -device ipmi-bmc-extern,id=bmc,chardev=board -device isa-ipmi-kcs,bmc=bmc)
fi
with_modules "${more_modules[@]}"
pack_root "$here/nodes-init" "$out/initrd"

before_boot() {
    rm -f "$out"/disk[01]
    truncate -s "${disk_mib}M" "$out/disk0" "$out/disk1"
}
run_guest "$seconds" -accel tcg,thread=multi "${machine[@]}" -serial file:"$out/back.tar.gz" \
    -append "console=ttyS0 quiet panic=-1 no_timer_check"
rm -f "$out"/disk[01]
tar -xzf "$out/back.tar.gz" -C "$out/back"
rm -f "$out/back.tar.gz"
