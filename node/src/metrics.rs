//! Prometheus text exposition of the reports. The format is a few lines of text; a registry would only copy what core
//! counts already.

use crate::cluster::report::{ClusterNodeReport, ForwardingReport};
use crate::config::DestageName;
use crate::report::{NodeReport, VolumeReport};
use std::fmt::Write;

/// Content type of [`render`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What a family says of a volume; nothing where that is not known.
type Value = Box<dyn Fn(&VolumeReport) -> Option<f64>>;

/// One family: name without prefix, help, type, and the value of each volume.
struct Family {
    name: String,
    help: String,
    counter: bool,
    value: Value,
}

fn gauge(name: &str, help: &str, value: impl Fn(&VolumeReport) -> f64 + 'static) -> Family {
    Family { name: name.to_owned(), help: help.to_owned(), counter: false, value: Box::new(move |v| Some(value(v))) }
}

/// All metrics. Label values are names of volumes and nodes, which hold no character that needs an escape.
pub fn render(node: &NodeReport, volumes: &[VolumeReport], nodes: &[ClusterNodeReport]) -> String {
    let mut out = String::new();
    let mut alone = |name: &str, help: &str, labels: &str, value: f64| {
        let _ =
            writeln!(out, "# HELP forebay_{name} {help}\n# TYPE forebay_{name} gauge\nforebay_{name}{labels} {value}");
    };
    let build = format!("{{version=\"{}\",io=\"{}\"}}", node.version, node.io_mode);
    alone("build_info", "Version and I/O mode of the daemon.", &build, 1.0);
    alone("uptime_seconds", "Time since the daemon's start.", "", node.uptime_s);
    alone("memory_bytes_max", "Bound on the daemon's memory, arenas included.", "", node.memory_bytes_max as f64);

    let mut families = vec![
        gauge("volume_size_bytes", "Size of the volume.", |v| v.size_bytes as f64),
        gauge("volume_serving", "1 while the volume serves clients.", |v| f64::from(u8::from(v.phase == "serving"))),
        gauge("volume_policy_as_requested", "1 while the effective policy is the requested one.", |v| {
            f64::from(u8::from(v.policy.reason == "as-requested"))
        }),
        gauge("volume_backing_failing", "1 while the backing fails.", |v| {
            f64::from(u8::from(v.backing.state == "failing"))
        }),
        gauge("volume_backing_held", "1 while the backing is held unchanged.", |v| {
            f64::from(u8::from(v.backing.state == "held"))
        }),
        gauge("volume_backing_displaced", "1 while the image is not the file at its path.", |v| {
            f64::from(u8::from(v.backing.displaced.is_some()))
        }),
        gauge("volume_backing_awaiting_lock", "1 while I/O of an earlier process to the backing is awaited.", |v| {
            f64::from(u8::from(v.backing.state == "awaiting-lock"))
        }),
        gauge(
            "volume_backing_replaying_journal",
            "1 while an earlier life's journal is brought into the image.",
            |v| f64::from(u8::from(v.backing.state == "replaying-journal")),
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
            f64::from(u8::from(v.destage.reason == "as-requested"))
        }),
        gauge("volume_journal_bytes", "Size of the journal beside the image; 0: none.", |v| {
            v.destage.journal_bytes as f64
        }),
        gauge("volume_group_bytes_mean", "Mean size of the groups that clients make.", |v| {
            v.destage.group_bytes_mean as f64
        }),
        gauge("volume_groups_waiting", "Barrier groups waiting to be destaged.", |v| f64::from(v.dirty.groups_waiting)),
        gauge("volume_oldest_dirty_seconds", "Age of the oldest dirty write.", |v| v.dirty.oldest_s),
        Family {
            name: "volume_drain_seconds".to_owned(),
            help: "Dirty bytes at the backing's measured speed; absent while that is not known.".to_owned(),
            counter: false,
            value: Box::new(|v| v.dirty.drain_left_s),
        },
        gauge("volume_drain_seconds_max", "Time to drain at which writes are slowed; 0 = no such limit.", |v| {
            v.dirty.drain_max_s as f64
        }),
        gauge("volume_destage_bytes_per_second", "Measured speed of the backing.", |v| {
            v.dirty.destage_bytes_per_s as f64
        }),
        Family {
            name: "volume_unfenced_owners".to_owned(),
            help: "Former owners that may still write to the backing; absent for a volume of one node.".to_owned(),
            counter: false,
            value: Box::new(|v| v.cluster.as_ref().map(|c| f64::from(c.unfenced))),
        },
        Family {
            name: "volume_unfenced_seconds".to_owned(),
            help: "For how long this node has looked in vain for proof about a former owner.".to_owned(),
            counter: false,
            value: Box::new(|v| {
                let fence = v.cluster.as_ref()?.fence.as_ref()?;
                Some(fence.former.iter().map(|former| former.waiting_s).fold(0.0, f64::max))
            }),
        },
        Family {
            name: "volume_fence_class".to_owned(),
            help: "What there is about a former owner's writes: 0 detection, 1 evidence, 2 a fence.".to_owned(),
            counter: false,
            value: Box::new(|v| match v.cluster.as_ref()?.fence.as_ref()?.class.as_str() {
                "fence" => Some(2.0),
                "evidence" => Some(1.0),
                _ => Some(0.0),
            }),
        },
        gauge("volume_waiting_writes", "Writes waiting for room in the tier.", |v| f64::from(v.dirty.waiting_writes)),
    ];
    families.extend(of_forwarding());
    for (name, _) in crate::report::counters(&Default::default()) {
        families.push(Family {
            name: format!("volume_{name}_total"),
            help: format!("{} since the daemon's start.", name.replace('_', " ")),
            counter: true,
            value: Box::new(move |v| Some(v.counters.get(name).copied().unwrap_or(0) as f64)),
        });
    }
    let of_cluster = |v: &VolumeReport, name: &str| Some(*v.cluster.as_ref()?.counters.get(name)? as f64);
    for (name, _) in crate::cluster::report::counters(&Default::default(), &Default::default()) {
        families.push(Family {
            name: format!("volume_{name}_total"),
            help: format!("{} of a cluster's volume on this node since its start.", name.replace('_', " ")),
            counter: true,
            value: Box::new(move |v| of_cluster(v, name)),
        });
    }
    for family in families {
        let kind = if family.counter { "counter" } else { "gauge" };
        let _ = writeln!(out, "# HELP forebay_{0} {1}\n# TYPE forebay_{0} {kind}", family.name, family.help);
        for volume in volumes {
            if let Some(value) = (family.value)(volume) {
                let _ = writeln!(out, "forebay_{}{{volume=\"{}\"}} {value}", family.name, volume.name);
            }
        }
    }
    render_links(&mut out, nodes);
    out
}

/// Requests of this node's clients that other nodes answer; absent for volumes of one node.
fn of_forwarding() -> Vec<Family> {
    type Of = fn(&ForwardingReport) -> u64;
    let families: [(&str, &str, bool, Of); 5] = [
        ("volume_forwarding_clients", "NBD clients whose requests another node answers.", false, |f| f.clients),
        ("volume_forwarding_waiting", "Requests forwarded, or to be, and not answered.", false, |f| f.waiting),
        ("volume_forwarded_requests_total", "Requests forwarded since the daemon's start.", true, |f| f.requests),
        ("volume_forwarded_bytes_total", "Bytes of reads and writes among them.", true, |f| f.bytes),
        ("volume_forwarded_again_total", "Requests that were asked again after a break.", true, |f| f.again),
    ];
    let family = |(name, help, counter, of): (&str, &str, bool, Of)| Family {
        name: name.to_owned(),
        help: help.to_owned(),
        counter,
        value: Box::new(move |v| v.cluster.as_ref().map(|cluster| of(&cluster.forwarding) as f64)),
    };
    families.into_iter().map(family).collect()
}

/// What a family says of a link.
type LinkValue = fn(&ClusterNodeReport) -> f64;

/// The links to the other nodes of the cluster, each under the other node's name.
fn render_links(out: &mut String, nodes: &[ClusterNodeReport]) {
    let families: [(&str, &str, &str, LinkValue); 10] = [
        ("link_up", "1 while something can be sent to the node.", "gauge", |n| f64::from(n.up == Some(true))),
        ("link_channels_up", "Channels of the link that are in use.", "gauge", |n| {
            n.channels.iter().filter(|channel| channel.phase == "up").count() as f64
        }),
        ("link_channels", "Channels of the link.", "gauge", |n| n.channels.len() as f64),
        ("link_sent_bytes_total", "Bytes sent to the node.", "counter", |n| {
            n.channels.iter().map(|channel| channel.sent_bytes).sum::<u64>() as f64
        }),
        ("link_received_bytes_total", "Bytes received from the node.", "counter", |n| {
            n.channels.iter().map(|channel| channel.received_bytes).sum::<u64>() as f64
        }),
        ("link_resent_messages_total", "Messages sent again by another channel.", "counter", |n| {
            n.channels.iter().map(|channel| channel.resent).sum::<u64>() as f64
        }),
        ("link_compression", "1 while payload to the node is compressed.", "gauge", |n| {
            f64::from(n.compression.as_ref().is_some_and(|compression| compression.now != "off"))
        }),
        ("link_compression_from_bytes_total", "Payload that was sent compressed, as it was before.", "counter", |n| {
            n.compression.as_ref().map_or(0.0, |compression| compression.from_bytes as f64)
        }),
        ("link_compression_saved_bytes_total", "Bytes that compression kept from the wire.", "counter", |n| {
            n.compression.as_ref().map_or(0.0, |compression| compression.saved_bytes as f64)
        }),
        ("link_compression_cpu_seconds_total", "CPU time that compression has taken.", "counter", |n| {
            n.compression.as_ref().map_or(0.0, |compression| compression.cpu_s)
        }),
    ];
    if nodes.iter().all(|node| node.own) {
        return;
    }
    for (name, help, kind, value) in families {
        let _ = writeln!(out, "# HELP forebay_{name} {help}\n# TYPE forebay_{name} {kind}");
        for node in nodes.iter().filter(|node| !node.own) {
            let _ = writeln!(out, "forebay_{name}{{node=\"{}\"}} {}", node.name, value(node));
        }
    }
    render_compression_off(out, nodes);
}

/// The reason is a label, of a closed set of words: a link has one sample, and none while it compresses.
fn render_compression_off(out: &mut String, nodes: &[ClusterNodeReport]) {
    let name = "forebay_link_compression_off";
    let _ = writeln!(
        out,
        "# HELP {name} 1 with the reason why payload to the node is not compressed.\n# TYPE {name} gauge"
    );
    for node in nodes {
        if let Some(reason) = node.compression.as_ref().and_then(|compression| compression.reason.as_ref()) {
            let _ = writeln!(out, "{name}{{node=\"{}\",reason=\"{reason}\"}} 1", node.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::example;

    #[test]
    fn each_sample_has_a_type_and_a_finite_value() {
        let (node, volume) = example();
        let peer = crate::cluster::report::example_node();
        let text = render(&node, &[volume], &[peer]);
        let mut samples = 0;
        for line in text.lines().filter(|l| !l.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            let family = name.split('{').next().unwrap();
            assert!(text.contains(&format!("# TYPE {family} ")), "{family} has no type");
            assert!(value.parse::<f64>().unwrap().is_finite(), "{line}");
            samples += 1;
        }
        assert!(samples > 40, "{samples}");
        assert!(text.contains("forebay_volume_dirty_bytes{volume=\"vm1\"} 4096\n"), "{text}");
        assert!(text.contains("forebay_link_channels_up{node=\"beta\"} 1\n"), "{text}");
        assert!(text.contains("forebay_link_compression_saved_bytes_total{node=\"beta\"} 200\n"), "{text}");
        let off = "forebay_link_compression_off{node=\"beta\",reason=\"the wire carries all that comes\"} 1\n";
        assert!(text.contains(off), "{text}");
        assert!(text.contains("forebay_volume_backing_displaced{volume=\"vm1\"} 1\n"), "{text}");
    }
}
