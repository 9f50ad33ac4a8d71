//! What a link can carry, in bytes a second and direction, by what its registers and the kernel say of it.
//!
//! Each formula names its source. Decimal units throughout, as links are sold: 1 GB/s is 10^9 bytes a second.

use forebay_host::topology::infiniband_bits;

/// A billion bytes a second.
pub const GB: f64 = 1e9;

/// Share of a PCIe link that its own acknowledgements and flow control take (DLLPs). A rule of thumb; a dual-port QDR adapter reached
/// 3.148 of 3.37 GB/s, which is 93 %.
pub const PCIE_AFTER_DLLPS: f64 = 0.95;

/// Which way payload goes over a device's link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Dma {
    /// The device writes to memory: a NIC that receives, a disk that is read.
    Writes,
    /// The device reads from memory.
    Reads,
}

/// PCIe after its line code, in bytes a second: 8b/10b up to 5 GT/s, 128b/130b up to 32 GT/s (PCI Express base specification; the kernel's
/// `pcie_bandwidth_available()` has the same 2000, 4000, 7876, 15753 Mb/s a lane). At 64 GT/s, 236 of a FLIT's 256 bytes carry packets.
pub fn pcie_raw(speed_gts: f64, lanes: u32) -> f64 {
    let code = match speed_gts {
        ..=5.0 => 0.8,
        5.0..=32.0 => 128.0 / 130.0,
        _ => 236.0 / 256.0,
    };
    speed_gts * code * f64::from(lanes) / 8.0 * GB
}

/// PCIe payload: what packets of `payload` bytes leave of it. 5 to 7 double words go with each (Intel, "PCIe performance", without ECRC): 24 bytes
/// with what a device writes; a completion of what it reads has a header of 12 bytes, and so 20.
pub fn pcie_useful(speed_gts: f64, lanes: u32, payload: u32, dma: Dma) -> f64 {
    let around = match dma {
        Dma::Writes => 24.0,
        Dma::Reads => 20.0,
    };
    let payload = f64::from(payload);
    pcie_raw(speed_gts, lanes) * payload / (payload + around)
}

/// Payload of TCP over Ethernet: 38 bytes of preamble, header, checksum and gap around each packet, headers of IPv4 and TCP with time stamps in it
/// (IEEE 802.3, RFC 7323).
pub fn tcp_over_ethernet(line_bits: u64, mtu: u32) -> f64 {
    line_bits as f64 / 8.0 * f64::from(mtu.saturating_sub(20 + 20 + 12)) / f64::from(mtu + 38)
}

/// Payload of RoCE v2: 82 bytes around each RDMA packet (Ethernet 38, IPv4 20, UDP 8, BTH 12, ICRC 4).
pub fn roce_v2(line_bits: u64, rdma_mtu: u32) -> f64 {
    line_bits as f64 / 8.0 * f64::from(rdma_mtu) / f64::from(rdma_mtu + 82)
}

/// The RDMA packet that fits into an Ethernet packet: the largest power of two from 256 to 4096 with its headers (58 bytes and a VLAN's worth of room).
pub fn rdma_mtu(ethernet_mtu: u32) -> u32 {
    [4096, 2048, 1024, 512].into_iter().find(|size| size + 64 <= ethernet_mtu).unwrap_or(256)
}

/// Data of InfiniBand after its line code, in bytes a second, by the rate as sysfs prints it: `40 Gb/sec (4X QDR)` carries 4.0 GB/s.
pub fn infiniband(rate: &str) -> Option<f64> {
    infiniband_bits(rate).map(|bits| bits as f64 / 8.0)
}

/// Payload of TCP over IP over InfiniBand, by the bits of data that the line carries. A datagram has 38 bytes around it (headers LRH 8,
/// BTH 12, DETH 8, the encapsulation's 4, checksums 6), as many as on Ethernet; a connected mode's packet of up to 65520 bytes is cut into
/// those of the line, of 4096 bytes at most with 26 around each (InfiniBand architecture specification, volume 1; RFC 4391 and 4755).
pub fn tcp_over_infiniband(data_bits: u64, mtu: u32) -> f64 {
    const DATAGRAM_MAX: u32 = 4092;
    if mtu <= DATAGRAM_MAX {
        return tcp_over_ethernet(data_bits, mtu);
    }
    let whole = f64::from(mtu) + 4.0;
    let around = (whole / 4096.0).ceil() * 26.0;
    data_bits as f64 / 8.0 * f64::from(mtu.saturating_sub(20 + 20 + 12)) / (whole + around)
}

/// The line's bits a second in a rate as sysfs prints it: `25 Gb/sec (1X EDR)`.
pub fn rate_bits(rate: &str) -> Option<u64> {
    let gigabits: f64 = rate.split_once(" Gb/sec")?.0.trim().parse().ok()?;
    Some((gigabits * 1e9) as u64)
}

/// QPI and UPI: two bytes a transfer and link (Intel, "An introduction to the QuickPath Interconnect").
pub fn socket_link(speed_gts: f64, links: u32) -> f64 {
    speed_gts * 2.0 * f64::from(links) * GB
}

/// DDR: eight bytes a transfer and channel (JEDEC); ECC travels beside them.
pub fn ddr(mega_transfers: u32, channels: u32) -> f64 {
    f64::from(mega_transfers) * 1e6 * 8.0 * f64::from(channels)
}

/// Share of [`ddr`] that reads can reach: 48 of 59.7 and 46.2 of 59.7 GB/s were measured with four channels, McCalpin 62 of 68.3.
pub const DDR_REACHABLE: f64 = 0.8;

/// USB, by its rate in megabits: 8b/10b and protocol leave 0.42 of 0.5 GB/s of a 5 Gb/s bus.
pub fn usb(mbits: u32) -> f64 {
    f64::from(mbits) * 1e6 / 8.0 * if mbits > 5000 { 128.0 / 132.0 } else { 0.8 } * 0.84
}

/// SATA, by its rate in gigabits: 8b/10b, and frames of 8 KiB with their headers; 0.55 of 0.6 GB/s at 6 Gb/s.
pub fn sata(gigabits: f64) -> f64 {
    gigabits / 10.0 * 0.92 * GB
}

/// SAS, by a lane's rate in gigabits and the port's lanes: 1.1 of 1.2 GB/s at 12 Gb/s; 2.4 GB/s at 22.5 Gb/s, whose code takes 150 bits for
/// 128.
pub fn sas(gigabits: f64, lanes: u32) -> f64 {
    let lane = if gigabits > 12.0 { gigabits / 8.0 * 128.0 / 150.0 } else { gigabits / 10.0 * 0.92 };
    lane * f64::from(lanes) * GB
}

/// How long what waits to be written needs until it is on its device.
pub fn drain_seconds(dirty_bytes: f64, device: f64) -> f64 {
    dirty_bytes / device
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_says_of_a_slot_what_the_formulas_give_in_each_direction() {
        let page = include_str!("../../docs/doctor.md");
        let row = page.lines().find(|line| line.starts_with("| PCIe |")).expect("a row of PCIe");
        let useful = |dma| format!("{:.2}", pcie_useful(5.0, 8, 128, dma) / GB);
        let (writes, reads) = (useful(Dma::Writes), useful(Dma::Reads));
        assert_eq!((writes.as_str(), reads.as_str()), ("3.37", "3.46"));
        assert!(
            row.contains(&format!("are {writes} from the card to memory and {reads} from memory to the card")),
            "{row}"
        );
        assert!(row.contains("P/(P+24)") && row.contains("P/(P+20)"), "{row}");
    }

    /// To the last digit that was published.
    #[track_caller]
    fn is(value: f64, published: f64, digits: i32) {
        let half = 0.5 * 10f64.powi(-digits) * 1.000_001;
        assert!((value - published).abs() <= half, "{value} is not {published}");
    }

    #[test]
    fn pcie_carries_what_the_specification_and_the_kernel_say() {
        let rows: [(f64, [f64; 4], i32); 5] = [
            (2.5, [0.25, 1.0, 2.0, 4.0], 2),
            (5.0, [0.5, 2.0, 4.0, 8.0], 2),
            (8.0, [0.98, 3.94, 7.88, 15.75], 2),
            (16.0, [1.97, 7.88, 15.75, 31.51], 2),
            (32.0, [3.94, 15.75, 31.51, 63.0], 1),
        ];
        for (speed, published, digits) in rows {
            for (lanes, published) in [1, 4, 8, 16].into_iter().zip(published) {
                is(pcie_raw(speed, lanes) / GB, published, digits);
            }
        }
        for (speed, kernel) in [(2.5, 2000.0), (5.0, 4000.0), (8.0, 7876.0), (16.0, 15753.0)] {
            // The kernel rounds the factor 128/130 down.
            assert!((pcie_raw(speed, 1) * 8.0 / 1e6 - kernel).abs() < 2.0, "{speed}");
        }
        is(pcie_raw(64.0, 1) / GB / 8.0, 0.92, 2);
    }

    #[test]
    fn packets_leave_of_pcie_what_was_measured() {
        for (payload, share) in [(128, 0.842), (256, 0.914), (512, 0.955)] {
            is(pcie_useful(5.0, 8, payload, Dma::Writes) / pcie_raw(5.0, 8), share, 3);
        }
        is(pcie_useful(5.0, 8, 128, Dma::Writes) / GB, 3.37, 2);
        is(pcie_useful(5.0, 8, 128, Dma::Reads) / pcie_raw(5.0, 8), 0.865, 3);
        is(pcie_useful(5.0, 8, 128, Dma::Reads) / GB, 3.46, 2);
        // The step from 128 to 256 bytes.
        is(pcie_useful(5.0, 8, 256, Dma::Writes) / pcie_useful(5.0, 8, 128, Dma::Writes), 1.086, 3);
    }

    #[test]
    fn tcp_leaves_of_ethernet_what_the_table_says() {
        is(tcp_over_ethernet(8, 1500), 0.9415, 4);
        is(tcp_over_ethernet(8, 9000), 0.9900, 4);
        let rows = [(2_500_000_000, 0.294, 0.309), (10_000_000_000, 1.177, 1.238), (25_000_000_000, 2.94, 3.09)];
        for (bits, at_1500, at_9000) in rows {
            is(tcp_over_ethernet(bits, 1500) / GB, at_1500, if at_1500 < 2.0 { 3 } else { 2 });
            is(tcp_over_ethernet(bits, 9000) / GB, at_9000, if at_9000 < 2.0 { 3 } else { 2 });
        }
        is(tcp_over_ethernet(100_000_000_000, 1500) / GB, 11.77, 2);
        is(tcp_over_ethernet(100_000_000_000, 9000) / GB, 12.38, 2);
        // 5000 x 1448/1538, of which 587 MB/s are 99.8 %; MTU 9000 would add 5.2 %.
        is(2.0 * tcp_over_ethernet(2_500_000_000, 1500) * 8.0 / 1e6, 4707.0, 0);
        is(587e6 / (2.0 * tcp_over_ethernet(2_500_000_000, 1500)), 0.998, 3);
        is(tcp_over_ethernet(8, 9000) / tcp_over_ethernet(8, 1500), 1.052, 3);
        assert_eq!(tcp_over_ethernet(8, 40), 0.0, "a packet without room for its headers carries nothing");
    }

    #[test]
    fn rdma_carries_what_the_table_says() {
        is(roce_v2(8, 1024), 0.926, 3);
        is(roce_v2(8, 4096), 0.980, 3);
        assert_eq!([1500, 2200, 4200, 9000, 500].map(rdma_mtu), [1024, 2048, 4096, 4096, 256]);
        let rates = [
            ("10 Gb/sec (4X SDR)", 1.0),
            ("20 Gb/sec (4X DDR)", 2.0),
            ("40 Gb/sec (4X QDR)", 4.0),
            ("40 Gb/sec (4X FDR10)", 5.0),
            ("56 Gb/sec (4X FDR)", 6.8),
            ("100 Gb/sec (4X EDR)", 12.5),
            ("200 Gb/sec (4X HDR)", 25.0),
            ("400 Gb/sec (4X NDR)", 50.0),
        ];
        for (rate, data) in rates {
            is(infiniband(rate).expect(rate) / GB, data, 1);
        }
        assert_eq!(infiniband("40 Gb/sec"), None);
        assert_eq!([infiniband("0 Gb/sec (0X QDR)"), infiniband("9 Gb/sec (99X QDR)")], [None, None]);
        is(tcp_over_infiniband(32_000_000_000, 2044) / GB, 3.83, 2);
        is(tcp_over_infiniband(32_000_000_000, 65_520) / GB, 3.97, 2);
        assert_eq!(infiniband("1 Gb/sec (4X ODD)"), None);
        assert_eq!(rate_bits("2.5 Gb/sec (1X SDR)"), Some(2_500_000_000));
        assert_eq!(rate_bits("25 Gb/sec (1X EDR)"), Some(25_000_000_000));
    }

    #[test]
    fn sockets_and_memory_carry_what_the_table_says() {
        let links = [
            (6.4, 12.8),
            (7.2, 14.4),
            (8.0, 16.0),
            (9.6, 19.2),
            (10.4, 20.8),
            (11.2, 22.4),
            (16.0, 32.0),
            (20.0, 40.0),
        ];
        for (speed, one) in links {
            is(socket_link(speed, 1) / GB, one, 1);
        }
        is(socket_link(8.0, 2) / GB, 32.0, 1);
        let channels = [
            (1333, 10.7),
            (1600, 12.8),
            (1866, 14.9),
            (2133, 17.1),
            (2933, 23.5),
            (3200, 25.6),
            (4800, 38.4),
            (5600, 44.8),
        ];
        for (speed, one) in channels {
            is(ddr(speed, 1) / GB, one, 1);
        }
        is(48.0 * GB / ddr(1866, 4), DDR_REACHABLE, 1);
        is(ddr(1600, 4) * DDR_REACHABLE / 2.0 / GB, 20.5, 1);
    }

    #[test]
    fn slow_buses_and_dirty_pages_are_as_the_table_says() {
        is(usb(5000) / GB, 0.42, 2);
        is(sata(6.0) / GB, 0.55, 2);
        is(sas(12.0, 1) / GB, 1.1, 1);
        is(sas(22.5, 2) / GB, 4.8, 1);
        // 90 % of 128 GB at 650 MB/s.
        is(drain_seconds(0.9 * 128.0 * GB, 650e6), 177.0, 0);
        // DMI 3 is four lanes at 8 GT/s, DMI 4 eight at 16.
        is(pcie_raw(8.0, 4) / GB, 3.94, 2);
        is(pcie_raw(16.0, 8) / GB, 15.75, 2);
    }
}
