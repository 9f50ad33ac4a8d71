//! What `serve` is asked to do: from the command line, or from a TOML file. Unknown keys are errors that name the
//! key and the line, because a misspelt key that is passed over is a setting silently not made.

pub mod address;
pub mod allow;
pub mod certificates;
pub mod cluster;
pub mod endpoint;
pub mod fence;
pub mod placement;
pub mod volume;
pub mod watchdog;

use self::certificates::CertificateList;
use self::volume::VolumeSpec;
use crate::checked::VolumeName;
use crate::units;
use anyhow::{Context, Result, bail};
use forebay_core::status::DestageMode;
use forebay_io::backing::BackingSpec;
use forebay_io::backing::nbd::uri::NbdUri;
use forebay_io::{Backing, folder};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// What the config file says, section by section.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Settings of the daemon itself, such as its state folder and its threads.
    pub node: NodeConfig,
    /// `[listen]`: where clients and callers connect.
    pub listen: ListenConfig,
    /// Its volumes; the first is the default NBD export.
    pub volume: Vec<VolumeSpec>,
    /// The cluster that it is a node of.
    pub cluster: Option<cluster::ClusterConfig>,
    /// Its links to the other nodes.
    pub link: Vec<cluster::LinkConfig>,
    /// How the machines of other nodes are switched off.
    pub fence: Vec<fence::FenceConfig>,
    /// What resets this machine when the daemon hangs.
    pub watchdog: Option<watchdog::WatchdogConfig>,
    /// On which NUMA node its data path runs.
    pub placement: placement::PlacementConfig,
    /// Which backings it serves that others have named.
    pub backings: allow::BackingsConfig,
    /// Where tiers may lie that others have named.
    pub tiers: allow::TiersConfig,
    /// It was read from a file, as a service's is: what is wrong with one thing in it does not keep the others from being served.
    #[serde(skip)]
    pub is_of_file: bool,
}

/// How disks are read and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum IoChoice {
    /// io_uring where the kernel allows it, else threads.
    #[default]
    Auto,
    /// io_uring or nothing.
    Uring,
    /// epoll and worker threads.
    Threads,
}

/// How the daemon writes what it says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text; with levels for the system's journal where that is what reads it.
    #[default]
    Auto,
    /// Text without levels.
    Text,
    /// One object in each line: time, level, area, volume, message.
    Json,
    /// Text, with a level before each line as sd-daemon(3) says.
    Journal,
}

/// The section `[node]`: settings of the daemon itself.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodeConfig {
    /// The state folder, with volume records and flash tiers; none: the usual one.
    pub state: Option<PathBuf>,
    /// How disks are read and written.
    pub io: IoChoice,
    /// Data-path threads; 0 = one less than the cores, at most [`SHARDS_MAX`].
    pub shards: u16,
    /// SIGTERM destages everything before the daemon ends.
    pub drain_on_stop: bool,
    /// Size of the tmpfs that holds memory tiers, where the daemon mounts it.
    #[serde(with = "units::size")]
    pub shm_size: Option<u64>,
    /// How it writes what it says.
    pub log_format: LogFormat,
}

impl Default for NodeConfig {
    fn default() -> Self {
        let (io, log_format) = (IoChoice::Auto, LogFormat::Auto);
        NodeConfig { state: None, io, shards: 0, drain_on_stop: true, shm_size: None, log_format }
    }
}

/// Data-path threads are at most so many: beyond it one volume per thread gains nothing on the machines meant here.
pub const SHARDS_MAX: u16 = 8;
/// Client connections of one listener.
pub const CONNECTIONS_MAX_DEFAULT: u32 = 256;

/// The section `[listen]`: where clients and callers connect, and how many of them at most.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ListenConfig {
    /// NBD sockets; empty = the usual unix socket.
    pub nbd: Vec<NbdAddress>,
    /// HTTP over TCP; none = 127.0.0.1:7070 if it is free.
    pub http: Option<HttpAddress>,
    /// TLS of HTTP over TCP.
    pub http_tls: Option<HttpTls>,
    /// The admin API's unix socket.
    pub api: Option<PathBuf>,
    /// Client connections of each listener, of which one user, network or certificate has at most three quarters.
    pub connections_max: u32,
    /// TLS of the NBD clients that come over TCP; those of a unix socket are known by its permissions.
    pub nbd_tls: Option<TlsFiles>,
}

/// `[listen] nbd_tls`: PEM files.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// The server's certificate, with those between it and its authority.
    pub cert: PathBuf,
    /// Private key of that certificate.
    pub key: PathBuf,
    /// Authorities of the clients' certificates: with it, a client must have one.
    pub client_ca: Option<PathBuf>,
}

/// `[listen] http_tls`: PEM files.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpTls {
    /// The server's certificate, with those between it and its authority.
    pub cert: PathBuf,
    /// Private key of that certificate.
    pub key: PathBuf,
    /// Authorities of callers' certificates. One of them is good for what the lists say, and else for nothing.
    pub client_ca: Option<PathBuf>,
    /// Names of certificates whose holders may change things.
    #[serde(default)]
    pub admins: CertificateList,
    /// Names of certificates whose holders may look, and change nothing.
    #[serde(default)]
    pub readers: CertificateList,
}

impl Default for ListenConfig {
    fn default() -> Self {
        ListenConfig {
            nbd: Vec::new(),
            http: None,
            http_tls: None,
            api: None,
            connections_max: CONNECTIONS_MAX_DEFAULT,
            nbd_tls: None,
        }
    }
}

/// Where NBD clients connect.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum NbdAddress {
    /// `unix:PATH`: a socket of this host.
    Unix(PathBuf),
    /// `tcp:HOST:PORT`: reached by other hosts as well.
    Tcp(String),
}

impl std::str::FromStr for NbdAddress {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> Result<Self> {
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Ok(NbdAddress::Unix(PathBuf::from(path))),
            Some(("tcp", rest))
                if rest.rsplit_once(':').is_some_and(|(h, p)| !h.is_empty() && p.parse::<u16>().is_ok()) =>
            {
                Ok(NbdAddress::Tcp(rest.to_owned()))
            }
            _ => bail!("NBD address {text:?}: write unix:PATH or tcp:HOST:PORT"),
        }
    }
}

impl TryFrom<String> for NbdAddress {
    type Error = anyhow::Error;
    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl std::fmt::Display for NbdAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NbdAddress::Unix(path) => write!(f, "unix:{}", path.display()),
            NbdAddress::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

/// Where HTTP listens on TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum HttpAddress {
    /// HTTP is not served over TCP.
    Off,
    /// At this address and port.
    At(SocketAddr),
}

impl std::str::FromStr for HttpAddress {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> Result<Self> {
        if text == "off" {
            return Ok(HttpAddress::Off);
        }
        match text.parse() {
            Ok(address) => Ok(HttpAddress::At(address)),
            Err(_) => bail!("HTTP address {text:?}: write an IP address and a port, such as 127.0.0.1:7070, or off"),
        }
    }
}

impl TryFrom<String> for HttpAddress {
    type Error = anyhow::Error;
    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum PolicyName {
    /// When the backing has it.
    #[serde(alias = "write-through", alias = "writethrough")]
    #[value(aliases = ["write-through", "writethrough"])]
    Through,
    /// When the tier has it.
    #[default]
    #[serde(alias = "write-back", alias = "writeback")]
    #[value(aliases = ["write-back", "writeback"])]
    Back,
}

impl From<PolicyName> for forebay_core::status::Policy {
    fn from(name: PolicyName) -> Self {
        match name {
            PolicyName::Through => forebay_core::status::Policy::Through,
            PolicyName::Back => forebay_core::status::Policy::Back,
        }
    }
}

/// How barrier groups reach the backing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum DestageName {
    /// One by one, each durable before the next.
    Ordered,
    /// Many merged into one batch, by a journal beside the image.
    Journaled,
    /// Ordered while groups are large, journaled when they are small or the backlog grows.
    #[default]
    Auto,
}

impl From<DestageName> for DestageMode {
    fn from(name: DestageName) -> Self {
        match name {
            DestageName::Ordered => DestageMode::Ordered,
            DestageName::Journaled => DestageMode::Journaled,
            DestageName::Auto => DestageMode::Auto,
        }
    }
}

impl From<DestageMode> for DestageName {
    fn from(mode: DestageMode) -> Self {
        match mode {
            DestageMode::Ordered => DestageName::Ordered,
            DestageMode::Journaled => DestageName::Journaled,
            DestageMode::Auto => DestageName::Auto,
        }
    }
}

/// Medium of a tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum TierName {
    /// An arena in tmpfs: survives the death of the process, not of the host.
    Memory,
    /// A file or block device on stable media.
    #[default]
    Flash,
}

impl TierName {
    /// As it is written.
    pub fn word(self) -> &'static str {
        match self {
            TierName::Memory => "memory",
            TierName::Flash => "flash",
        }
    }
}

/// What a volume's flush promises.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum FlushName {
    /// `media` while all members are on flash, else `replicated`.
    #[default]
    Auto,
    /// On stable media at every member.
    Media,
    /// Held by every member.
    Replicated,
    /// In the backing, synced.
    Destage,
}

impl From<FlushName> for forebay_core::status::Flush {
    fn from(name: FlushName) -> forebay_core::status::Flush {
        use forebay_core::status::Flush;
        match name {
            FlushName::Auto => Flush::Best,
            FlushName::Media => Flush::Media,
            FlushName::Replicated => Flush::Replicated,
            FlushName::Destage => Flush::Destage,
        }
    }
}

/// What is taken as the backing's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum FormatName {
    /// The bytes as they are, even where they look like another format.
    Raw,
}

/// Makes the path (or an NBD server's socket) behind a backing's wrappers absolute: a record outlives the directory it was written in.
pub fn absolute_spec(spec: &str) -> String {
    let mut rest = spec;
    while let Some(wrapper) = ["slow:", "faulty:"].iter().find(|w| rest.starts_with(**w)) {
        match rest[wrapper.len()..].split_once(':') {
            Some((_, inner)) => rest = inner,
            None => return spec.to_owned(),
        }
    }
    let head = &spec[..spec.len() - rest.len()];
    if NbdUri::is_meant(rest) {
        return match NbdUri::parse(rest) {
            Ok(uri) => format!("{head}{}", uri.absolute()),
            // Opening it says what is wrong with it.
            Err(_) => spec.to_owned(),
        };
    }
    // Some other scheme: opening it says so. Taken for a path it would be a file that is not there.
    if rest.contains("://") {
        return spec.to_owned();
    }
    match std::path::absolute(rest) {
        Ok(path) => format!("{head}{}", path.display()),
        Err(_) => spec.to_owned(),
    }
}

/// Whether two specs lead to one place. Files have a lock against that as well; NBD exports have nothing else.
pub fn same_backing(one: &str, other: &str) -> bool {
    let read = |spec: &str| BackingSpec::parse(&absolute_spec(spec));
    match (read(one), read(other)) {
        (Ok(one), Ok(other)) => one.target().same_place(other.target()),
        // One that cannot be read is refused when it is opened.
        _ => one == other,
    }
}

/// Smallest tier that is taken: that of the format. The largest request that such a volume accepts is small, too.
pub const TIER_BYTES_MIN: u64 = forebay_core::format::TIER_BLOCKS_MIN as u64 * 4096;
/// Smallest tier by default: one that holds the largest request of the protocol twice.
const TIER_BYTES_DEFAULT_MIN: u64 = 64 << 20;
/// Bounds of a journal, both areas together: what a useful batch needs, and what `forebay-io` makes.
const JOURNAL_BYTES_MIN: u64 = 2 << 20;
/// Largest journal, both areas together, in bytes: what `forebay-io` makes at most.
pub const JOURNAL_BYTES_MAX: u64 = 8 << 30;
/// Largest: block numbers of the format are 32 bits wide.
pub const TIER_BYTES_MAX: u64 = forebay_core::format::TIER_BLOCKS_MAX as u64 * 4096;
/// Longest limit on the time to drain: a week. What is meant to be longer is no limit.
pub const DRAIN_MAX_S_MAX: u64 = 7 * 24 * 3600;
/// Least RAM for staging and read cache: for nodes with very many small volumes. The largest request shrinks with it.
pub const MEMORY_BYTES_MIN: u64 = 1 << 20;
/// Least RAM for staging and read cache that is taken by default, in bytes.
const MEMORY_BYTES_DEFAULT_MIN: u64 = 64 << 20;
/// Most RAM for staging and read cache, in bytes: 1 TiB.
pub const MEMORY_BYTES_MAX: u64 = 1 << 40;

/// Names go into file names, URLs and NBD exports.
pub fn check_name(name: &str) -> Result<()> {
    VolumeName::new(name).map(|_| ()).map_err(anyhow::Error::msg)
}

/// Limits on the time to drain that a volume may have.
pub fn check_drain_max(name: &str, seconds: u64) -> Result<()> {
    if seconds > DRAIN_MAX_S_MAX {
        bail!("volume {name}: {seconds} s to drain is no limit; give up to 7 days, or 0 for none");
    }
    Ok(())
}

/// Sizes a volume may have.
pub fn check_size(name: &str, size: u64) -> Result<()> {
    use forebay_core::types::{SECTOR_BYTES, VOLUME_BYTES_MAX};
    if size == 0 {
        bail!("volume {name}: a size of 0 bytes; give one of at least 512 bytes, such as 10G");
    }
    if !size.is_multiple_of(SECTOR_BYTES) {
        bail!("volume {name}: a size of {size} bytes is not a multiple of 512");
    }
    if size > VOLUME_BYTES_MAX {
        bail!("volume {name}: a size of {} is more than the largest, 64T", units::show_size(size));
    }
    Ok(())
}

/// Refuses a size that ends inside a unit of the backing, which would never take what is written there.
pub fn check_whole_units(bytes: u64, backing: &Backing) -> Result<()> {
    let align = u64::from(backing.align());
    if !bytes.is_multiple_of(align) {
        let (less, more) = (bytes / align * align, bytes.next_multiple_of(align));
        let or_less = if less == 0 { String::new() } else { format!("{less} or ") };
        bail!(
            "a size of {bytes} bytes is not a multiple of the {align} bytes that the backing {} takes ({}); give {or_less}{more} bytes",
            backing.name(),
            backing.access()
        );
    }
    Ok(())
}

/// Tier size where none is given: a tenth of the volume within 1 to 16 GiB; below a 10 GiB volume less than 1 GiB
/// would be a tenth, and a tier larger than its volume is of no use.
pub fn tier_size_default(volume_bytes: u64) -> u64 {
    let within_volume = volume_bytes.clamp(TIER_BYTES_DEFAULT_MIN, 1 << 30);
    (volume_bytes / 10).clamp(within_volume, 16 << 30) / 4096 * 4096
}

/// RAM for staging and read cache where none is given.
pub fn memory_default(volume_bytes: u64) -> u64 {
    (volume_bytes / 8).clamp(MEMORY_BYTES_DEFAULT_MIN, 256 << 20) / 4096 * 4096
}

/// What core keeps for each block of a tier and for each frame of memory, in bytes.
pub fn index_memory(tier_bytes: u64, arena_bytes: u64) -> u64 {
    const PER_TIER_BLOCK: u64 = 96;
    const PER_FRAME: u64 = 64;
    tier_bytes / 4096 * PER_TIER_BLOCK + arena_bytes / 4096 * PER_FRAME
}

/// What the kernel shows as the name of a data-path thread.
pub fn shard_thread_name(number: usize) -> String {
    format!("shard-{number}")
}

/// Bytes that are read of a config.
const CONFIG_BYTES_MAX: u64 = 16 << 20;

impl Config {
    /// Reads and checks a file.
    pub fn load(path: &Path) -> Result<Config> {
        // It names programs that are run, and files that are opened: root takes it from nobody else.
        let text = match crate::paths::is_root() {
            true => folder::read_private_text(path, CONFIG_BYTES_MAX),
            false => folder::read_text(path, CONFIG_BYTES_MAX),
        };
        let text = text.with_context(|| format!("cannot read the config {}", path.display()))?;
        let config = Config::parse(&text).with_context(|| format!("the config {} is not valid", path.display()))?;
        Ok(Config { is_of_file: true, ..config })
    }

    /// Reads a config's text and checks it; the error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Config> {
        let config: Config = toml::from_str(text).map_err(|e| anyhow::anyhow!("{}", e.to_string().trim_end()))?;
        config.check()?;
        Ok(config)
    }

    /// Refuses what cannot be meant.
    pub fn check(&self) -> Result<()> {
        if self.node.shards > SHARDS_MAX {
            bail!("[node] shards = {}: at most {SHARDS_MAX}", self.node.shards);
        }
        if self.listen.connections_max == 0 || self.listen.connections_max > 65_536 {
            bail!("[listen] connections_max = {}: from 1 to 65536", self.listen.connections_max);
        }
        if self.listen.nbd_tls.is_some() && !self.listen.nbd.iter().any(|a| matches!(a, NbdAddress::Tcp(_))) {
            bail!(
                "TLS is for NBD clients that come over TCP, and no TCP address is given: add --nbd tcp:HOST:PORT \
                 (config: [listen] nbd = [\"tcp:HOST:PORT\"]), or leave TLS out"
            );
        }
        if self.listen.http_tls.is_some() && self.listen.http == Some(HttpAddress::Off) {
            bail!("TLS is for HTTP, and that is off: give it an address with --http HOST:PORT, or leave TLS out");
        }
        if let Some(HttpTls { client_ca: None, admins, readers, .. }) = &self.listen.http_tls
            && !(admins.names().is_empty() && readers.names().is_empty())
        {
            bail!(
                "[listen] http_tls lists certificates, and asks for none: give client_ca, the authority that they are of, as well"
            );
        }
        self.placement.check()?;
        self.backings.check()?;
        self.tiers.check()?;
        fence::check(&self.fence, self.cluster.is_some())?;
        if let Some(watchdog) = &self.watchdog {
            watchdog.check(self.cluster.is_some())?;
        }
        match &self.cluster {
            Some(cluster) => cluster.check(&self.link)?,
            None if self.link.is_empty() => {}
            None => bail!("[[link]] without [cluster]: links are for the nodes of a cluster"),
        }
        for (i, volume) in self.volume.iter().enumerate() {
            volume.check()?;
            let of_cluster = volume.peers.is_some() || volume.min_peers.is_some() || volume.flush.is_some();
            if of_cluster || volume.reserve {
                bail!(
                    "volume {}: peers, min_peers, flush and reserve are for volumes of a cluster, which are made by `forebay volume create`",
                    volume.name
                );
            }
            for earlier in &self.volume[..i] {
                if earlier.name == volume.name {
                    bail!("[[volume]] name = {:?} is there twice", volume.name);
                }
                if same_backing(&earlier.backing, &volume.backing) {
                    bail!(
                        "[[volume]] {:?} and {:?} have the same backing {:?}; a backing belongs to one volume",
                        earlier.name,
                        volume.name,
                        volume.backing
                    );
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        [node]
        io = "threads"
        drain_on_stop = false
        shm_size = "8G"
        log_format = "json"
        [listen]
        nbd = ["unix:/run/forebay/nbd.sock", "tcp:0.0.0.0:10809"]
        http = "off"
        [[volume]]
        name = "vm1"
        backing = "slow:iops=700:/mnt/nas/vm1.img"
        size = "10G"
        create = true
        [[volume]]
        name = "vm2"
        backing = "/mnt/nas/vm2.img"
        tier = "memory"
        volatile = true
        tier_size = 134217728
        policy = "through"
        destage = "journaled"
        journal_size = "64M"
        drain_max_s = 10
    "#;

    /// Also the lines that wait to be uncommented.
    #[test]
    fn packaged_example_is_understood() {
        let example = include_str!("../../packaging/forebay.toml");
        let is_key = |text: &&str| {
            let key = text.split_once(" = ").map_or("", |(key, _)| key);
            text.starts_with('[') || (!key.is_empty() && key.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
        };
        let all: Vec<&str> =
            example.lines().map(|line| line.strip_prefix("# ").filter(is_key).unwrap_or(line)).collect();
        assert_eq!(Config::parse(example).unwrap().volume.len(), 0);
        let config = Config::parse(&all.join("\n")).unwrap();
        assert_eq!((config.volume.len(), config.volume[0].size), (1, Some(10 << 30)));
        assert!(config.node.state.is_some() && config.listen.nbd_tls.is_some());
    }

    #[test]
    fn config_reads_every_table() {
        let config = Config::parse(GOOD).unwrap();
        assert_eq!(config.node.io, IoChoice::Threads);
        assert!(!config.node.drain_on_stop);
        assert_eq!(config.node.shm_size, Some(8 << 30));
        assert_eq!((config.node.log_format, NodeConfig::default().log_format), (LogFormat::Json, LogFormat::Auto));
        assert_eq!(config.listen.nbd.len(), 2);
        assert_eq!(config.listen.http, Some(HttpAddress::Off));
        assert_eq!(config.listen.connections_max, CONNECTIONS_MAX_DEFAULT);
        assert_eq!(config.volume[0].size, Some(10 << 30));
        assert_eq!(config.volume[0].policy, None);
        assert_eq!(config.volume[1].tier_size, Some(128 << 20));
        assert_eq!(config.volume[0].destage, None);
        assert_eq!(config.volume[1].destage, Some(DestageName::Journaled));
        assert_eq!(config.volume[1].journal_size, Some(64 << 20));
        assert_eq!(config.volume[1].policy, Some(PolicyName::Through));
        assert_eq!((config.volume[0].drain_max_s, config.volume[1].drain_max_s), (None, Some(10)));
    }

    #[test]
    fn unknown_key_is_refused_with_its_name_and_line() {
        let text = GOOD.replace("create = true", "craete = true");
        let error = format!("{:#}", Config::parse(&text).unwrap_err());
        assert!(error.contains("craete"), "{error}");
        assert!(error.contains("line 14"), "{error}");
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let refused = |change: (&str, &str), expected: &str| {
            let error = format!("{:#}", Config::parse(&GOOD.replace(change.0, change.1)).unwrap_err());
            assert!(error.contains(expected), "{error}");
        };
        refused(("volatile = true", ""), "--volatile");
        refused(("drain_max_s = 10", "drain_max_s = 10000000"), "7 days");
        refused(("tier_size = 134217728", "tier_size = \"9T\""), "the most is 4.0T");
        refused(("\"vm2\"", "\"vm1\""), "twice");
        refused(("/mnt/nas/vm2.img", "slow:iops=700:/mnt/nas/vm1.img"), "same backing");
        refused(("size = \"10G\"", "size = 0"), "0 bytes");
        refused(("size = \"10G\"", "size = 1000"), "multiple of 512");
        refused(("size = \"10G\"", "size = \"65T\""), "64T");
        refused(("134217728", "1000"), "too small");
        refused(("\"64M\"", "\"12K\""), "multiple of 8K");
        refused(("\"64M\"", "\"1M\""), "from 2M");
        refused(("\"journaled\"", "\"sideways\""), "sideways");
        refused(("\"vm2\"", "\"../vm2\""), "volume name");
        refused(("unix:/run/forebay/nbd.sock", "/run/forebay/nbd.sock"), "unix:PATH");
        refused(("\"threads\"", "\"fibers\""), "fibers");
    }

    #[test]
    fn path_behind_wrappers_is_made_absolute() {
        let here = std::env::current_dir().unwrap();
        let here = here.display();
        assert_eq!(absolute_spec("a.img"), format!("{here}/a.img"));
        assert_eq!(absolute_spec("/b/a.img"), "/b/a.img");
        assert_eq!(absolute_spec("slow:iops=7:faulty:seed=1:a.img"), format!("slow:iops=7:faulty:seed=1:{here}/a.img"));
        assert_eq!(absolute_spec("slow:iops=7"), "slow:iops=7");
        assert_eq!(absolute_spec("slow:iops=7:http://h/a.img"), "slow:iops=7:http://h/a.img");
        assert_eq!(
            absolute_spec("slow:iops=7:nbd+unix:///vm1?socket=a.sock"),
            format!("slow:iops=7:nbd+unix:///vm1?socket={here}/a.sock")
        );
        assert_eq!(absolute_spec("nbd://nas/vm1"), "nbd://nas:10809/vm1");
        assert_eq!(absolute_spec("nbd:///vm1"), "nbd:///vm1");
    }

    #[test]
    fn one_place_is_one_backing_however_it_is_written() {
        assert!(same_backing("nbd://nas/vm1", "slow:iops=7:nbd://nas:10809/vm1?nbd_quiet=1s"));
        assert!(same_backing("a.img", "slow:iops=7:./a.img"));
        assert!(!same_backing("nbd://nas/vm1", "nbd://nas/vm2"));
        assert!(!same_backing("a.img", "b.img"));
    }

    #[test]
    fn sixty_four_tebibytes_are_the_largest_volume() {
        check_size("v", 64 << 40).unwrap();
        assert!(check_size("v", (64 << 40) + 512).is_err());
    }

    #[test]
    fn default_tier_is_a_tenth_within_its_bounds() {
        assert_eq!(tier_size_default(1 << 20), 64 << 20);
        assert_eq!(tier_size_default(512 << 20), 512 << 20);
        assert_eq!(tier_size_default(10 << 30), 1 << 30);
        assert_eq!(tier_size_default(100 << 30), 10 << 30);
        assert_eq!(tier_size_default(64 << 40), 16 << 30);
    }
}
