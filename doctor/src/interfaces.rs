//! Which interfaces of a host carry its traffic, and what is wanted of them.

use crate::Host;
use forebay_host::system::Seen;
use forebay_host::topology::Nic;

/// Interfaces of this network that carry: those of hardware.
pub fn hardware(host: &Host) -> impl Iterator<Item = (&String, &Nic)> {
    let is_one = |(_, nic): &(&String, &Nic)| nic.kind == "physical" && nic.up && !nic.for_guest;
    // A dozen checks ask for them, and a file is read of each.
    let names = host.hardware.get_or_init(|| ours(host).filter(is_one).map(|(name, _)| name.clone()).collect());
    host.topology.nics.iter().filter(|(name, _)| names.contains(*name))
}

/// Interfaces that sysfs and the kernel's network agree on: in a container that shows another network's sysfs, a name may mean two.
pub fn ours(host: &Host) -> impl Iterator<Item = (&String, &Nic)> {
    host.topology.nics.iter().filter(|(name, _)| match &host.net.links {
        Seen::Is(links) => {
            let index = host.system.number::<u32>(&format!("/sys/class/net/{name}/ifindex")).known();
            links.get(*name).is_some_and(|link| Some(link.index) == index)
        }
        Seen::Absent | Seen::Hidden(_) => true,
    })
}

/// Offloads without which each packet costs by itself, as the kernel names them, and as ethtool's options do.
pub const WANTED: [(&str, &str); 2] = [("tx-tcp-segmentation", "tso"), ("rx-gro", "gro")];
