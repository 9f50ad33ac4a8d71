//! Metrics of the node, its volumes and its links, in the words of the reports. The formats are a few lines of text; a
//! registry would only copy what core counts already.

mod exposition;

use crate::node::Look;
use crate::sampler;
pub use exposition::Format;
use exposition::{Exposition, Kind};
use forebay_api::cluster::{ClusterNodeReport, ClusterReport, ForwardingReport, ReplicaRole};
use forebay_api::config::{DestageName, PolicyName};
use forebay_api::status::{DoctorSummary, HistoryState, NodeReport, Reading, VolumeReport};
use forebay_api::words::{BackingState, ChannelPhase, DestageReason, MemberState, PolicyReason, VolumePhase};
use forebay_core::stats::{Histogram, Legs, Stats};
use forebay_host::identity::ends::Ends;

/// What a family says of a volume; nothing where that is not known.
type Value = Box<dyn Fn(&VolumeReport) -> Option<f64>>;

/// One family of volumes: name without prefix and suffix, help, type, and the value of each volume.
struct Family {
    name: String,
    help: String,
    kind: Kind,
    value: Value,
}

fn gauge(name: &str, help: &str, value: impl Fn(&VolumeReport) -> f64 + 'static) -> Family {
    maybe(name, help, move |v| Some(value(v)))
}

fn maybe(name: &str, help: &str, value: impl Fn(&VolumeReport) -> Option<f64> + 'static) -> Family {
    Family { name: name.to_owned(), help: help.to_owned(), kind: Kind::Gauge, value: Box::new(value) }
}

fn counter(name: &str, help: String, value: impl Fn(&VolumeReport) -> Option<f64> + 'static) -> Family {
    Family { name: name.to_owned(), help, kind: Kind::Counter, value: Box::new(value) }
}

/// All metrics of the node and its volumes, as a scraper reads them.
pub fn render(
    format: Format,
    node: &NodeReport,
    looks: &[Look],
    nodes: &[ClusterNodeReport],
    history: &HistoryState,
    identity: Option<&Ends>,
) -> String {
    let mut out = Exposition::new(format);
    out.family(Kind::Info, "forebay_build", "Version and I/O mode of the daemon.")
        .sample(&[("version", &node.version), ("io", &node.io_mode)], 1.0);
    let mut alone = |name: &str, help: &str, value: f64| out.family(Kind::Gauge, name, help).sample(&[], value);
    alone("forebay_uptime_seconds", "Time since the daemon's start.", node.uptime_s);
    alone("forebay_memory_bytes_max", "Bound on the daemon's memory, arenas included.", node.memory_bytes_max as f64);
    render_process(&mut out, history);
    render_coordinator(&mut out, node);
    render_identity(&mut out, identity);
    render_doctor(&mut out, node);
    for family in of_volumes() {
        let mut samples = out.family(family.kind, &format!("forebay_{}", family.name), &family.help);
        for Look { report: volume, .. } in looks {
            if let Some(value) = (family.value)(volume) {
                samples.sample(&[("volume", &volume.name)], value);
            }
        }
    }
    render_degraded(&mut out, looks);
    render_measured(&mut out, looks);
    render_links(&mut out, nodes);
    out.finish()
}

/// Upper edges of the classes that are told, in microseconds: 32 us to 16.8 s, at powers of two, where what is counted has an
/// edge of its own.
const EDGES_US: std::ops::RangeInclusive<u32> = 5..=24;

/// How long things took.
fn render_measured(out: &mut Exposition, looks: &[Look]) {
    let measured: Vec<(&String, &Stats)> =
        looks.iter().filter_map(|look| Some((&look.report.name, look.seen.as_deref()?))).collect();
    let write = |family: &mut exposition::Family<'_>, labels: &[(&str, &str)], times: &Histogram| {
        let classes: Vec<(f64, u64)> =
            EDGES_US.map(|power| 1u64 << power).map(|us| (us as f64 / 1e6, times.count_below(us))).collect();
        family.histogram(labels, &classes, times.count(), times.sum_us() as f64 / 1e6);
    };
    let help = "Time of requests by leg: client is what clients see, local the tier, network other nodes, waiting for room or copies.";
    let mut family = out.family(Kind::Histogram, "forebay_volume_latency_seconds", help);
    for (name, seen) in &measured {
        for (side, legs) in [("read", &seen.reads), ("write", &seen.writes)] {
            let Legs { client, local, network, backing, waiting } = legs;
            let by_name = [
                ("client", client),
                ("local", local),
                ("network", network),
                ("backing", backing),
                ("waiting", waiting),
            ];
            for (leg, times) in by_name {
                write(&mut family, &[("volume", name), ("side", side), ("leg", leg)], times);
            }
        }
    }
    type Of = fn(&Stats) -> &Histogram;
    let families: [(&str, &str, Of); 3] = [
        ("forebay_volume_flush_seconds", "Time of flushes, as clients see it.", |s| &s.flush),
        ("forebay_volume_destage_seconds", "Time of writes to the backing while destaging.", |s| &s.destage),
        ("forebay_volume_backing_sync_seconds", "Time of syncs of the backing.", |s| &s.backing_sync),
    ];
    for (family, help, of) in families {
        let mut family = out.family(Kind::Histogram, family, help);
        for (name, seen) in &measured {
            write(&mut family, &[("volume", name)], of(seen));
        }
    }
}

/// The daemon itself, under the names that all exporters use for it, and how its history fares.
fn render_process(out: &mut Exposition, history: &HistoryState) {
    out.family(Kind::Counter, "process_cpu_seconds", "CPU time of the daemon, all threads.")
        .sample(&[], sampler::cpu_seconds());
    let mut alone = |name: &str, help: &str, value: f64| out.family(Kind::Gauge, name, help).sample(&[], value);
    if let Some(bytes) = sampler::memory_bytes() {
        alone("process_resident_memory_bytes", "Memory of the daemon, arenas included.", bytes as f64);
    }
    if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
        alone("process_open_fds", "Open file descriptors of the daemon.", open.count() as f64);
    }
    let failing = f64::from(u8::from(history.problem.is_some()));
    alone("forebay_history_failing", "1 while the history cannot be written.", failing);
    alone("forebay_history_bytes", "What the history takes of the disk.", history.bytes as f64);
    out.family(Kind::Counter, "forebay_history_dropped", "Points and events that were not written.")
        .sample(&[], history.dropped as f64);
}

/// What should be done about the cluster's coordinator; no sample where there is nothing.
fn render_coordinator(out: &mut Exposition, node: &NodeReport) {
    let help = "1 for what should be done about the cluster's etcd: `forebay status` tells it.";
    let mut codes: Vec<&str> = node.coordinator.iter().map(|trouble| trouble.code.as_str()).collect();
    codes.sort_unstable();
    codes.dedup();
    if codes.is_empty() {
        return;
    }
    let mut family = out.family(Kind::Gauge, "forebay_coordinator_trouble", help);
    for code in codes {
        family.sample(&[("code", code)], 1.0);
    }
}

/// When the certificates of a node of a cluster end.
fn render_identity(out: &mut Exposition, identity: Option<&Ends>) {
    let Some(ends) = identity else { return };
    let help = "When the certificate of this node, or of its cluster's authority, ends, as seconds since 1970.";
    let mut family = out.family(Kind::Gauge, "forebay_certificate_end_timestamp_seconds", help);
    for (of, end) in [("node", ends.own), ("authority", ends.authority)] {
        family.sample(&[("of", of)], end.as_secs_f64());
    }
}

/// What the doctor has found when it last saw something; nothing before.
fn render_doctor(out: &mut Exposition, node: &NodeReport) {
    let mut findings = out.family(Kind::Gauge, "forebay_doctor_findings", "What bounds or endangers this host.");
    let Some(DoctorSummary { at: Some(_), errors, warnings, notes, sensors, log_entries, .. }) = &node.doctor else {
        return;
    };
    for (severity, count) in [("error", errors), ("warning", warnings), ("note", notes)] {
        findings.sample(&[("severity", severity)], *count as f64);
    }
    let mut readings = out.family(Kind::Gauge, "forebay_board_sensor", "What the board's controller senses.");
    // Two of one name cannot be told apart, and a second sample would spoil all of them.
    let mut named = std::collections::BTreeSet::new();
    for Reading { sensor, value, unit } in sensors.iter().filter(|reading| named.insert(&reading.sensor)) {
        if let Ok(value) = value.parse() {
            readings.sample(&[("sensor", sensor), ("unit", unit)], value);
        }
    }
    let mut log = out.family(Kind::Gauge, "forebay_board_log_entries", "Entries of the board's event log.");
    if let Some(entries) = log_entries {
        log.sample(&[], *entries as f64);
    }
}

/// The reason is a label, of a closed set of words: a volume has one sample while its policy is not the requested one.
fn render_degraded(out: &mut Exposition, looks: &[Look]) {
    let word = |policy: PolicyName| match policy {
        PolicyName::Through => "through",
        PolicyName::Back => "back",
    };
    let help = "1 with the reason, while the effective policy is not the requested one.";
    let mut samples = out.family(Kind::Gauge, "forebay_volume_degraded", help);
    for Look { report: volume, .. } in looks {
        let policy = &volume.policy;
        if policy.requested == policy.effective {
            continue;
        }
        let labels = [
            ("volume", volume.name.as_str()),
            ("requested", word(policy.requested)),
            ("effective", word(policy.effective)),
            ("reason", policy.reason.as_str()),
        ];
        samples.sample(&labels, 1.0);
    }
}

/// All of volumes, in the order in which they are told.
fn of_volumes() -> Vec<Family> {
    let mut families = of_any_volume();
    families.extend(of_replication());
    families.push(gauge("volume_waiting_writes", "Writes waiting for room in the tier.", |v| {
        f64::from(v.dirty.waiting_writes)
    }));
    families.extend(of_forwarding());
    families.extend(of_counters());
    families
}

/// State and sizes of a volume, of a cluster or not.
fn of_any_volume() -> Vec<Family> {
    vec![
        gauge("volume_size_bytes", "Size of the volume.", |v| v.size_bytes as f64),
        gauge("volume_serving", "1 while the volume serves clients.", |v| {
            f64::from(u8::from(v.phase == VolumePhase::Serving))
        }),
        gauge("volume_policy_as_requested", "1 while the effective policy is the requested one.", |v| {
            f64::from(u8::from(v.policy.reason == PolicyReason::AsRequested))
        }),
        gauge("volume_backing_failing", "1 while the backing fails.", |v| {
            f64::from(u8::from(v.backing.state == BackingState::Failing))
        }),
        gauge("volume_backing_held", "1 while the backing is held unchanged.", |v| {
            f64::from(u8::from(v.backing.state == BackingState::Held))
        }),
        gauge("volume_backing_displaced", "1 while the image is not the file at its path.", |v| {
            f64::from(u8::from(v.backing.displaced.is_some()))
        }),
        gauge("volume_backing_awaiting_lock", "1 while I/O of an earlier process to the backing is awaited.", |v| {
            f64::from(u8::from(v.backing.state == BackingState::AwaitingLock))
        }),
        gauge("volume_backing_awaiting_fence", "1 while nothing is destaged before former owners are fenced.", |v| {
            f64::from(u8::from(v.backing.state == BackingState::AwaitingFence))
        }),
        gauge(
            "volume_backing_replaying_journal",
            "1 while an earlier life's journal is brought into the image.",
            |v| f64::from(u8::from(v.backing.state == BackingState::ReplayingJournal)),
        ),
        gauge("volume_connections", "NBD clients.", |v| f64::from(v.connections)),
        gauge("volume_term", "Number of the owner.", |v| f64::from(v.term)),
        gauge("volume_tier_bytes", "Size of the tier.", |v| v.tier.size_bytes as f64),
        gauge("volume_dirty_bytes", "Acknowledged and not yet durable in the backing.", |v| v.dirty.bytes as f64),
        gauge("volume_dirty_bytes_max", "Dirty bytes at which writes wait.", |v| v.dirty.bytes_max as f64),
        gauge("volume_dead_bytes", "Bytes of the tier neither live nor free.", |v| v.dirty.dead_bytes as f64),
        gauge("volume_clean_bytes", "Bytes of clean cache.", |v| v.dirty.clean_bytes as f64),
        gauge("volume_destage_journaled", "1 while groups are merged by the journal.", |v| {
            f64::from(u8::from(v.destage.effective == DestageName::Journaled))
        }),
        gauge("volume_destage_as_requested", "1 while the effective way of destage is the requested one.", |v| {
            f64::from(u8::from(v.destage.reason == DestageReason::AsRequested))
        }),
        gauge("volume_journal_bytes", "Size of the journal beside the image; 0: none.", |v| {
            v.destage.journal_bytes as f64
        }),
        gauge("volume_group_bytes_mean", "Mean size of the groups that clients make.", |v| {
            v.destage.group_bytes_mean as f64
        }),
        gauge("volume_groups_waiting", "Barrier groups waiting to be destaged.", |v| f64::from(v.dirty.groups_waiting)),
        gauge("volume_oldest_dirty_seconds", "Age of the oldest dirty write.", |v| v.dirty.oldest_s),
        maybe(
            "volume_drain_seconds",
            "Dirty bytes at the backing's measured speed; absent while that is not known.",
            |v| v.dirty.drain_s,
        ),
        gauge("volume_drain_seconds_max", "Time to drain at which writes are slowed; 0 = no such limit.", |v| {
            v.dirty.drain_max_s as f64
        }),
        gauge("volume_destage_bytes_per_second", "Measured speed of the backing.", |v| {
            v.dirty.destage_bytes_per_s as f64
        }),
    ]
}

/// Copies of the log, owners and fences; absent for a volume of one node.
fn of_replication() -> Vec<Family> {
    vec![
        of_cluster("volume_peers_requested", "Copies of the log besides the owner's that are asked for.", |c| {
            Some(f64::from(c.peers))
        }),
        of_cluster("volume_peers", "Copies of the log besides the owner's that count.", |c| {
            Some(c.members.iter().filter(|member| member.role == ReplicaRole::Member).count() as f64)
        }),
        of_cluster("volume_owned", "1 on the node that owns the volume.", |c| {
            Some(f64::from(u8::from(c.state == MemberState::Owner)))
        }),
        of_cluster("volume_unfenced_owners", "Former owners that may still write to the backing.", |c| {
            Some(f64::from(c.unfenced))
        }),
        of_cluster(
            "volume_unfenced_seconds",
            "For how long this node has looked in vain for proof about a former owner.",
            |c| Some(c.fence.as_ref()?.former.iter().map(|former| former.waiting_s).fold(0.0, f64::max)),
        ),
        of_cluster(
            "volume_fence_class",
            "What there is about a former owner's writes: 0 detection, 1 evidence, 2 a fence.",
            |c| match c.fence.as_ref()?.class.as_str() {
                "fence" => Some(2.0),
                "evidence" => Some(1.0),
                _ => Some(0.0),
            },
        ),
    ]
}

/// What is counted since the start: core's counters, then those of a cluster's volume.
fn of_counters() -> Vec<Family> {
    let mut families = Vec::new();
    for (name, _) in crate::status::counters(&Default::default()) {
        let help = format!("{} since the daemon's start.", name.replace('_', " "));
        families.push(counter(&format!("volume_{name}"), help, move |v| {
            Some(v.counters.get(name).copied().unwrap_or(0) as f64)
        }));
    }
    for (name, _) in crate::cluster::status::counters(&Default::default(), &Default::default()) {
        let help = format!("{} of a cluster's volume on this node since its start.", name.replace('_', " "));
        families.push(counter(&format!("volume_{name}"), help, move |v| {
            Some(*v.cluster.as_ref()?.counters.get(name)? as f64)
        }));
    }
    families
}

/// Absent for a volume of one node.
fn of_cluster(name: &str, help: &str, value: fn(&ClusterReport) -> Option<f64>) -> Family {
    maybe(name, help, move |v| value(v.cluster.as_ref()?))
}

/// Requests of this node's clients that other nodes answer; absent for volumes of one node.
fn of_forwarding() -> Vec<Family> {
    type Of = fn(&ForwardingReport) -> u64;
    let families: [(&str, &str, Kind, Of); 5] = [
        ("volume_forwarding_clients", "NBD clients whose requests another node answers.", Kind::Gauge, |f| f.clients),
        ("volume_forwarding_waiting", "Requests forwarded, or to be, and not answered.", Kind::Gauge, |f| f.waiting),
        ("volume_forwarded_requests", "Requests forwarded since the daemon's start.", Kind::Counter, |f| f.requests),
        ("volume_forwarded_bytes", "Bytes of reads and writes among them.", Kind::Counter, |f| f.bytes),
        ("volume_forwarded_again", "Requests that were asked again after a break.", Kind::Counter, |f| f.again),
    ];
    let family = |(name, help, kind, of): (&str, &str, Kind, Of)| Family {
        name: name.to_owned(),
        help: help.to_owned(),
        kind,
        value: Box::new(move |v| v.cluster.as_ref().map(|cluster| of(&cluster.forwarding) as f64)),
    };
    families.into_iter().map(family).collect()
}

/// What a family says of a link.
type LinkValue = fn(&ClusterNodeReport) -> f64;

/// The links to the other nodes of the cluster, each under the other node's name.
fn render_links(out: &mut Exposition, nodes: &[ClusterNodeReport]) {
    let families: [(&str, &str, Kind, LinkValue); 10] = [
        ("link_up", "1 while something can be sent to the node.", Kind::Gauge, |n| f64::from(n.up == Some(true))),
        ("link_channels_up", "Channels of the link that are in use.", Kind::Gauge, |n| {
            n.channels.iter().filter(|channel| channel.phase == ChannelPhase::Up).count() as f64
        }),
        ("link_channels", "Channels of the link.", Kind::Gauge, |n| n.channels.len() as f64),
        ("link_sent_bytes", "Bytes sent to the node.", Kind::Counter, |n| {
            n.channels.iter().map(|channel| channel.sent_bytes).sum::<u64>() as f64
        }),
        ("link_received_bytes", "Bytes received from the node.", Kind::Counter, |n| {
            n.channels.iter().map(|channel| channel.received_bytes).sum::<u64>() as f64
        }),
        ("link_resent_messages", "Messages sent again by another channel.", Kind::Counter, |n| {
            n.channels.iter().map(|channel| channel.resent).sum::<u64>() as f64
        }),
        ("link_compression", "1 while payload to the node is compressed.", Kind::Gauge, |n| {
            f64::from(n.compression.as_ref().is_some_and(|compression| compression.now != "off"))
        }),
        ("link_compression_from_bytes", "Payload that was sent compressed, as it was before.", Kind::Counter, |n| {
            n.compression.as_ref().map_or(0.0, |compression| compression.from_bytes as f64)
        }),
        ("link_compression_saved_bytes", "Bytes that compression kept from the wire.", Kind::Counter, |n| {
            n.compression.as_ref().map_or(0.0, |compression| compression.saved_bytes as f64)
        }),
        ("link_compression_cpu_seconds", "CPU time that compression has taken.", Kind::Counter, |n| {
            n.compression.as_ref().map_or(0.0, |compression| compression.cpu_s)
        }),
    ];
    for (name, help, kind, value) in families {
        let mut samples = out.family(kind, &format!("forebay_{name}"), help);
        for node in nodes.iter().filter(|node| !node.own) {
            samples.sample(&[("node", &node.name)], value(node));
        }
    }
    render_compression_off(out, nodes);
}

/// The reason is a label, of a closed set of words: a link has one sample, and none while it compresses.
fn render_compression_off(out: &mut Exposition, nodes: &[ClusterNodeReport]) {
    let help = "1 with the reason why payload to the node is not compressed.";
    let mut samples = out.family(Kind::Gauge, "forebay_link_compression_off", help);
    for node in nodes {
        if let Some(reason) = node.compression.as_ref().and_then(|compression| compression.reason.as_ref()) {
            samples.sample(&[("node", &node.name), ("reason", reason)], 1.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::example;
    use forebay_api::record::VolumeId;
    use forebay_core::types::Duration;
    use std::collections::BTreeSet;

    fn rendered(format: Format) -> String {
        let (mut node, volume) = example();
        let doctor = node.doctor.as_mut().expect("it has looked");
        let reading =
            |value: &str| Reading { sensor: "FAN2".to_owned(), value: value.to_owned(), unit: "RPM".to_owned() };
        (doctor.sensors, doctor.log_entries) = (vec![reading("1050"), reading("7")], Some(4));
        let peer = forebay_api::cluster::example_node();
        let mut seen = Stats::new(1);
        seen.writes.local.record(Duration::from_micros(100));
        seen.writes.local.record(Duration::from_secs(100));
        let look = Look { volume: VolumeId([0; 16]), report: volume, seen: Some(Box::new(seen)) };
        let history = HistoryState { dropped: 3, ..HistoryState::default() };
        let (own, authority) = (std::time::Duration::from_secs(86_400), std::time::Duration::from_secs(172_800));
        let ends = Ends { name: "alpha".to_owned(), own, authority };
        render(format, &node, &[look], &[peer], &history, Some(&ends))
    }

    #[test]
    fn each_sample_has_a_type_and_a_finite_value() {
        for format in [Format::Text, Format::OpenMetrics] {
            let text = rendered(format);
            let mut samples = 0;
            for line in text.lines().filter(|l| !l.starts_with('#')) {
                let (name, value) = line.rsplit_once(' ').unwrap();
                let name = name.split('{').next().unwrap();
                let family = match format {
                    Format::Text => name,
                    Format::OpenMetrics => name.trim_end_matches("_total").trim_end_matches("_info"),
                };
                let family = ["_bucket", "_sum", "_count"]
                    .iter()
                    .filter_map(|suffix| family.strip_suffix(suffix))
                    .find(|family| text.contains(&format!("# TYPE {family} histogram")))
                    .unwrap_or(family);
                assert!(text.contains(&format!("# TYPE {family} ")), "{family} has no type");
                assert!(value.parse::<f64>().unwrap().is_finite(), "{line}");
                samples += 1;
            }
            assert!(samples > 70, "{samples}");
        }
    }

    #[test]
    fn samples_say_what_the_reports_say() {
        let text = rendered(Format::Text);
        for line in [
            "forebay_volume_dirty_bytes{volume=\"vm1\"} 4096",
            "forebay_volume_writes_total{volume=\"vm1\"} 7",
            "forebay_volume_degraded{volume=\"vm1\",requested=\"back\",effective=\"through\",reason=\"tier-error\"} 1",
            "forebay_link_channels_up{node=\"beta\"} 1",
            "forebay_link_compression_saved_bytes_total{node=\"beta\"} 200",
            "forebay_link_compression_off{node=\"beta\",reason=\"the wire carries all that comes\"} 1",
            "forebay_volume_backing_displaced{volume=\"vm1\"} 1",
            "forebay_history_failing 0",
            "forebay_certificate_end_timestamp_seconds{of=\"node\"} 86400",
            "forebay_certificate_end_timestamp_seconds{of=\"authority\"} 172800",
            "forebay_coordinator_trouble{code=\"etcd-no-space\"} 1",
            "forebay_doctor_findings{severity=\"error\"} 1",
            "forebay_doctor_findings{severity=\"warning\"} 0",
            "forebay_board_sensor{sensor=\"FAN2\",unit=\"RPM\"} 1050",
            "forebay_board_log_entries 4",
            "forebay_history_dropped_total 3",
            "forebay_volume_latency_seconds_bucket{volume=\"vm1\",side=\"write\",leg=\"local\",le=\"0.000064\"} 0",
            "forebay_volume_latency_seconds_bucket{volume=\"vm1\",side=\"write\",leg=\"local\",le=\"0.000128\"} 1",
            "forebay_volume_latency_seconds_bucket{volume=\"vm1\",side=\"write\",leg=\"local\",le=\"16.777216\"} 1",
            "forebay_volume_latency_seconds_bucket{volume=\"vm1\",side=\"write\",leg=\"local\",le=\"+Inf\"} 2",
            "forebay_volume_latency_seconds_sum{volume=\"vm1\",side=\"write\",leg=\"local\"} 100.0001",
            "forebay_volume_latency_seconds_count{volume=\"vm1\",side=\"write\",leg=\"local\"} 2",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in:\n{text}");
        }
    }

    #[test]
    fn no_two_families_have_the_same_name() {
        let text = rendered(Format::OpenMetrics);
        let mut seen = BTreeSet::new();
        for family in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()) {
            assert!(seen.insert(family.to_owned()), "{family} comes twice");
        }
    }
}
