//! What `[cluster]` and `[[link]]` lead to on this machine: the identity, etcd's certificates, the links' addresses.

use crate::coordinator::etcd::{ANSWER_TIMEOUT, EtcdConfig, TlsFiles};
use anyhow::{Context, Result, bail};
use forebay_api::config::cluster::{ClusterConfig, LinkConfig, LinkEnd};
use forebay_api::secret::check_secret_mode;
use forebay_host::identity::Identity;
use forebay_host::interfaces::{Addresses, addresses_here};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// What `[cluster]` and `[[link]]` lead to here.
#[derive(Debug)]
pub struct Resolved {
    /// Who this node is, from its identity file.
    pub identity: Identity,
    /// How the coordinator is reached.
    pub etcd: EtcdConfig,
    /// Our addresses, each with the other end where that is given.
    pub links: Vec<(IpAddr, Option<SocketAddr>)>,
}

fn password(file: &Path) -> Result<String> {
    check_secret_mode(file)?;
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read etcd's password from {}", file.display()))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

fn resolve_links(links: &[LinkConfig], here: &Addresses) -> Result<Vec<(IpAddr, Option<SocketAddr>)>> {
    let mut resolved: Vec<(IpAddr, Option<SocketAddr>)> = Vec::new();
    for link in links {
        let own = match &link.own {
            LinkEnd::Address(address) if here.iter().any(|(_, known)| known == address) => *address,
            LinkEnd::Address(address) => {
                let known: Vec<String> = here.iter().map(|(name, address)| format!("{address} ({name})")).collect();
                bail!(
                    "[[link]] own = \"{address}\" is not an address of this machine, which has {}; bring its interface up first",
                    known.join(", ")
                )
            }
            LinkEnd::Interface(name) => address_of(name, here)?,
        };
        if resolved.contains(&(own, link.peer)) {
            bail!(
                "[[link]] own = \"{}\" leads to {own}, which is there already; each pair of addresses is one link",
                link.own
            );
        }
        resolved.push((own, link.peer));
    }
    Ok(resolved)
}

/// The address of an interface for links.
pub(super) fn address_of(interface: &str, here: &Addresses) -> Result<IpAddr> {
    let of_link_alone = |address: &IpAddr| matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
    let own: Vec<IpAddr> = here.iter().filter(|(name, _)| name == interface).map(|(_, address)| *address).collect();
    let best = own.iter().find(|address| address.is_ipv4()).or(own.iter().find(|address| !of_link_alone(address)));
    if let Some(best) = best {
        return Ok(*best);
    }
    let mut names: Vec<&str> = here.iter().map(|(name, _)| name.as_str()).collect();
    names.dedup();
    bail!(
        "[[link]] own = \"{interface}\": there is no such interface with an address of its own; interfaces with one are {}",
        names.join(", ")
    )
}

/// Looks at this machine: the identity, etcd's certificates, the links' addresses.
pub fn resolve(cluster: &ClusterConfig, links: &[LinkConfig]) -> Result<Resolved> {
    cluster.check(links)?;
    Ok(Resolved {
        identity: Identity::load(&cluster.identity)?,
        etcd: etcd_config(cluster)?,
        links: resolve_links(links, &addresses_here()?)?,
    })
}

fn etcd_config(cluster: &ClusterConfig) -> Result<EtcdConfig> {
    let tls = cluster
        .etcd_tls
        .as_ref()
        .map(|files| TlsFiles { ca: files.ca.clone(), own: files.cert.clone().zip(files.key.clone()) });
    let user = match (&cluster.etcd_user, &cluster.etcd_password_file) {
        (Some(user), Some(file)) => Some((user.clone(), password(file)?)),
        (Some(_) | None, _) => None,
    };
    let endpoints = cluster.etcd.iter().map(|url| url.0.clone()).collect();
    Ok(EtcdConfig { endpoints, tls, user, answer_timeout: ANSWER_TIMEOUT })
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_api::config::Config;
    use forebay_host::identity::Authority;
    use forebay_tests::harness::TempDir;

    #[test]
    fn links_lead_to_addresses_that_are_here() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let here = vec![
            ("lo".to_owned(), address("127.0.0.1")),
            ("eth0".to_owned(), address("fe80::1")),
            ("eth0".to_owned(), address("fd00::1")),
            ("eth0".to_owned(), address("10.0.0.1")),
            ("eth1".to_owned(), address("fe80::2")),
            ("eth1".to_owned(), address("fd00::2")),
            ("eth2".to_owned(), address("fe80::3")),
        ];
        let resolve = |ends: &[&str]| {
            let link = |end: &&str| LinkConfig { own: LinkEnd::try_from((*end).to_owned()).unwrap(), peer: None };
            resolve_links(&ends.iter().map(link).collect::<Vec<_>>(), &here)
        };
        let good = resolve(&["eth0", "fd00::1", "eth1"]).unwrap();
        assert_eq!(good.iter().map(|(own, _)| own.to_string()).collect::<Vec<_>>(), ["10.0.0.1", "fd00::1", "fd00::2"]);
        let refused = |ends: &[&str], why: &str| {
            let error = resolve(ends).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        };
        refused(&["10.0.0.2"], "10.0.0.1 (eth0)");
        refused(&["eth0", "10.0.0.1"], "there already");
        refused(&["eth2"], "eth2");
        refused(&["eth7"], "lo, eth0, eth1, eth2");
    }

    #[test]
    fn this_machine_is_looked_at() {
        let here = addresses_here().unwrap();
        assert!(here.iter().any(|(name, address)| name == "lo" && address.is_loopback()), "{here:?}");

        let folder = TempDir::new("cluster-config");
        Authority::init(folder.path(), "lab").unwrap();
        let mut authority = Authority::open(folder.path()).unwrap();
        authority.enrol("alpha", &folder.join("alpha.toml"), false).unwrap();
        let password = folder.join("password");
        std::fs::write(&password, "secret\n").unwrap();
        let text = |link: &str| {
            format!(
                "[cluster]\nidentity = {:?}\netcd = [\"http://127.0.0.1:2379\"]\netcd_user = \"u\"\netcd_password_file = {password:?}\n\
                 [[link]]\nown = {link:?}\n",
                folder.join("alpha.toml")
            )
        };
        let resolve = |link: &str| {
            let config = Config::parse(&text(link)).unwrap();
            super::resolve(&config.cluster.unwrap(), &config.link)
        };
        let error = format!("{:#}", resolve("lo").unwrap_err());
        assert!(error.contains("chmod 600"), "a password for all to read: {error}");
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&password, std::fs::Permissions::from_mode(0o600)).unwrap();
        let resolved = resolve("lo").unwrap();
        assert_eq!((resolved.identity.name.as_str(), resolved.links.len()), ("alpha", 1));
        assert_eq!(resolved.etcd.user, Some(("u".into(), "secret".into())));
        assert!(format!("{:#}", resolve("192.0.2.1").unwrap_err()).contains("127.0.0.1 (lo)"));
    }
}
