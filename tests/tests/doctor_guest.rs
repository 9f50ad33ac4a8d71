//! `forebay doctor` in a machine with two sockets, emulated: what a real kernel shows of nodes, links and interrupts, and what it
//! lets be changed.

use forebay_tests::harness::TempDir;
use forebay_tests::nodes::Machine;

#[test]
fn nodes_and_devices_are_where_the_machine_was_told_to_have_them() {
    let folder = TempDir::new("doctor-guest");
    let ran = Machine::default().run(
        folder.path(),
        "cat /sys/devices/system/node/node1/distance >/out/distance; cat /sys/block/$(disk_at 1)/device/numa_node >/out/node",
    );
    assert_eq!(ran.text("distance").trim(), "21 10");
    assert_eq!(ran.text("node").trim(), "1");
}
