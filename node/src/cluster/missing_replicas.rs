//! Why nodes keep no copy of a volume that asks for more than it has: what the operator can do something about, in words. Whom
//! the owner takes is decided in core (`ownership::peers`), by the same figures.

use super::control::Cluster;
use super::status::{TWINS, name_of};
use crate::coordinator::schema::{Definition, Load};
use forebay_api::cluster::{ClusterReport, MissingReplica, ReplicaRole};
use forebay_api::config::TierName;
use forebay_api::units::show_size;

impl Cluster {
    /// Empty where there are as many copies as are asked for.
    pub(super) async fn missing_replicas(&self, definition: &Definition, shown: &ClusterReport) -> Vec<MissingReplica> {
        let keeps_log =
            |name: &str| shown.members.iter().any(|member| member.node == name && member.role != ReplicaRole::Learner);
        let nodes = self.nodes();
        if nodes.iter().filter(|entry| keeps_log(&entry.name)).count() > usize::from(definition.peers) {
            return Vec::new();
        }
        let (links, loads) = (self.links().await, self.loads());
        let why = |name: &str| {
            let has_twins = links.iter().any(|link| link.has_twins && name_of(&nodes, link.node) == name);
            let down = links.iter().any(|link| !link.up && name_of(&nodes, link.node) == name);
            let load = loads.iter().find(|load| load.name == name);
            if has_twins {
                Some(TWINS.to_owned())
            } else if down {
                Some("there is no link to it; `forebay node list` shows why".to_owned())
            } else if self.is_evacuated(name) {
                Some(format!("it is being evacuated; `forebay node evacuate {name} --undo` ends that"))
            } else {
                load.and_then(|load| lacks_room(definition, load))
            }
        };
        let left = nodes.iter().filter(|entry| !keeps_log(&entry.name));
        left.filter_map(|entry| Some(MissingReplica { node: entry.name.to_string(), why: why(&entry.name)? })).collect()
    }
}

fn lacks_room(definition: &Definition, load: &Load) -> Option<String> {
    let kind = definition.tier.kind;
    let (free, wanted, medium) = (load.free_bytes(kind), definition.tier.size_bytes, kind.word());
    let remedy = match kind {
        TierName::Memory => "free some memory",
        TierName::Flash => "free some space in its state folder",
    };
    (free < wanted).then(|| {
        format!(
            "its {medium} has room for {}, and a tier takes {}; {remedy}, or make the volume with a smaller --tier-size",
            show_size(free),
            show_size(wanted)
        )
    })
}
