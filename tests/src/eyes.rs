//! What the nodes of a cluster say over their API, asked by any thread, with a time limit: a node that stands still is one that
//! does not answer. Nothing here starts a process.

use crate::cluster::{Cluster, NAMES};
use crate::nbd::Target;
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A node that runs answers at once; two busy cores are given time.
const GLANCE: Duration = Duration::from_millis(800);

/// Where the nodes are asked.
#[derive(Clone, Debug)]
pub struct Eyes {
    folder: PathBuf,
    nodes: usize,
}

/// What a node says of a volume.
#[derive(Clone, Debug)]
pub struct View {
    /// Everything that it says, as JSON.
    pub shown: Value,
    /// Where the node stands with it.
    pub state: String,
    /// The term that its log of the volume is in; 0 where it has none.
    pub term: u64,
}

impl View {
    fn new(shown: Value) -> Option<View> {
        let cluster = &shown["cluster"];
        let (state, term) = (cluster["state"].as_str()?.to_owned(), shown["term"].as_u64()?);
        Some(View { shown, state, term })
    }

    /// It serves clients, as far as it knows.
    pub fn serves(&self) -> bool {
        self.state == "owner" && self.shown["phase"] == "serving"
    }

    /// Nodes that the record names as members, the owner among them, by their place in [`NAMES`].
    pub fn copies(&self) -> Vec<usize> {
        let members = self.shown["cluster"]["members"].as_array().into_iter().flatten();
        let names = members.filter(|member| member["role"] != "learner").filter_map(|member| member["node"].as_str());
        names.filter_map(|name| NAMES.iter().position(|own| *own == name)).collect()
    }

    /// It has as many copies as are asked for, acknowledges by them, and no former owner may still write. `Err`: what is
    /// missing.
    pub fn is_whole(&self, peers: u32) -> Result<(), String> {
        let cluster = &self.shown["cluster"];
        let members = cluster["members"]
            .as_array()
            .map_or(0, |members| members.iter().filter(|member| member["role"] != "learner").count());
        let (policy, unfenced) = (&self.shown["policy"]["effective"], &cluster["unfenced"]);
        let whole = members == 1 + peers as usize && policy == "back" && unfenced == 0;
        whole.then_some(()).ok_or_else(|| {
            let reason = &cluster["reason"];
            format!("{members} members, policy {policy}, {unfenced} unfenced, reason {reason}")
        })
    }
}

impl Eyes {
    /// The eyes for all nodes of a cluster.
    pub fn of(cluster: &Cluster) -> Eyes {
        Eyes { folder: cluster.folder.path().to_owned(), nodes: cluster.daemons.len() }
    }

    fn place(&self, node: usize, what: &str) -> PathBuf {
        self.folder.join(format!("{}-{what}", NAMES[node]))
    }

    /// Where its clients connect to a volume.
    pub fn target(&self, node: usize, volume: &str) -> Target {
        Target { export: volume.to_owned(), ..Target::unix(self.place(node, "nbd.sock")) }
    }

    /// What a node says of all its volumes; none where it does not answer.
    pub fn volumes(&self, node: usize) -> Option<Vec<(String, View)>> {
        let listed = self.ask(node, "GET", "/v1/volumes", None, GLANCE).ok()?;
        let named = |shown: &Value| Some((shown["name"].as_str()?.to_owned(), View::new(shown.clone())?));
        Some(listed.as_array()?.iter().filter_map(named).collect())
    }

    /// What a node says of a volume; none where it says nothing.
    pub fn volume(&self, node: usize, volume: &str) -> Option<View> {
        let shown = self.ask(node, "GET", &format!("/v1/volumes/{volume}"), None, GLANCE).ok()?;
        View::new(shown)
    }

    /// The node that serves a volume in the highest term.
    pub fn owner(&self, volume: &str) -> Option<(usize, View)> {
        let views = (0..self.nodes).filter_map(|node| Some((node, self.volume(node, volume)?)));
        views.filter(|(_, view)| view.serves()).max_by_key(|(_, view)| view.term)
    }

    /// One question over the node's API.
    pub fn ask(
        &self,
        node: usize,
        method: &str,
        path: &str,
        body: Option<&Value>,
        limit: Duration,
    ) -> Result<Value, String> {
        let socket = self.place(node, "api.sock");
        let (head, text) = exchange(&socket, method, path, body, limit)
            .map_err(|error| format!("{method} {path} of {}: {error}", NAMES[node]))?;
        let status = head.split_whitespace().nth(1).unwrap_or_default();
        match serde_json::from_str(&text) {
            Ok(value) if status == "200" || status == "201" => Ok(value),
            Ok(_) | Err(_) => Err(format!("{method} {path} of {}: {status} {text}", NAMES[node])),
        }
    }

    /// What each node says of its volumes in few words, and its last lines.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        for (node, name) in NAMES.iter().enumerate().take(self.nodes) {
            let log = std::fs::read_to_string(self.place(node, "log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let last = lines[lines.len().saturating_sub(40)..].join("\n");
            text.push_str(&format!("--- {name} ---\n{last}\n"));
            for (volume, View { shown, state, term }) in self.volumes(node).unwrap_or_default() {
                let cluster = &shown["cluster"];
                text.push_str(&format!(
                    "{volume}: {state}, term {term}, {} for {} s; {}; {}; {}; members {}\n",
                    cluster["reason"],
                    cluster["since_s"],
                    shown["phase"],
                    shown["policy"],
                    shown["positions"],
                    cluster["members"],
                ));
            }
        }
        text
    }
}

/// One request of HTTP/1.0, so that the answer ends with the connection: its first line, and its body.
fn exchange(
    socket: &Path,
    method: &str,
    path: &str,
    body: Option<&Value>,
    limit: Duration,
) -> std::io::Result<(String, String)> {
    let begun = Instant::now();
    let body = body.map(Value::to_string).unwrap_or_default();
    let mut stream = UnixStream::connect(socket)?;
    stream.set_write_timeout(Some(limit))?;
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = Vec::new();
    let mut piece = [0; 16 << 10];
    loop {
        let left = limit.saturating_sub(begun.elapsed()).max(Duration::from_millis(1));
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut piece)? {
            0 => break,
            read => answer.extend_from_slice(&piece[..read]),
        }
    }
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    Ok((head.lines().next().unwrap_or_default().to_owned(), body.to_owned()))
}
