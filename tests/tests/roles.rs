//! Who gets in with which certificate: every kind of certificate at every listener of the real binary, lists of clients,
//! certificates that `forebay node certify` makes, and where the token is shown.

use forebay_core::roles::{Place, Role};
use forebay_tests::certificates::{Authority, Says, Validity};
use forebay_tests::curl::{free_address, try_curl};
use forebay_tests::harness::{
    Daemon, IoMode, Nbdkit, Output, TempDir, Tier, VOLUME_NAME, Volume, die_with_the_test, forebay, free_port,
    require_tool, run_command, run_tool,
};
use forebay_tests::nbd::{Address, Client, Target};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const MINUTE: Duration = Duration::from_secs(60);

/// What a client may show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shown {
    Nothing,
    Role(Role),
    NoRole,
    TwoRoles,
    UnknownRole,
    Pattern,
    ThousandNames,
    Expired,
    Strangers,
}

impl Shown {
    fn all() -> Vec<Shown> {
        use Shown::{Expired, NoRole, Nothing, Pattern, Strangers, ThousandNames, TwoRoles, UnknownRole};
        let others = [Nothing, NoRole, TwoRoles, UnknownRole, Pattern, ThousandNames, Expired, Strangers];
        Role::ALL.map(Shown::Role).into_iter().chain(others).collect()
    }

    /// The files, in a folder of their own.
    fn make(self, folder: &TempDir, authority: &Authority) -> PathBuf {
        let name = format!("{self:?}").replace(['(', ')'], "-");
        let client = Role::NbdClient.uri();
        let many: Vec<String> = (0..1000).map(|number| format!("host-{number}.lab")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let role = match self {
            Shown::Role(role) => role.uri(),
            _ => client.clone(),
        };
        let (dns, uris) = match self {
            Shown::Nothing => return authority.client(folder, &name, None),
            Shown::Role(_) | Shown::Expired | Shown::Strangers => (vec!["host.lab"], vec![role.as_str()]),
            Shown::NoRole => (vec!["host.lab"], vec![]),
            Shown::TwoRoles => (vec!["host.lab"], vec!["forebay:role:node", client.as_str()]),
            Shown::UnknownRole => (vec!["host.lab"], vec!["forebay:role:root"]),
            Shown::Pattern => (vec!["*.lab"], vec![]),
            Shown::ThousandNames => (many.into_iter().chain(["host.lab"]).collect(), vec![client.as_str()]),
        };
        let validity = if self == Shown::Expired { Validity::Expired } else { Validity::Current };
        let says = Says { dns: &dns, uris: &uris };
        match self {
            Shown::Strangers => Authority::new("strangers").anybody(folder, &name, says, validity),
            _ => authority.anybody(folder, &name, says, validity),
        }
    }
}

/// What is let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum In {
    /// Not even TLS.
    Refused,
    /// Who is on a list, by name.
    Listed,
    /// By its role, and to what it is listed for.
    ByRole,
    /// Without a certificate, as far as that goes there.
    Unknown,
}

/// What this project has decided. A new role or place does not compile until it stands here as well.
fn decided(place: Place, shown: Shown) -> In {
    match (place, shown) {
        (_, Shown::TwoRoles | Shown::UnknownRole | Shown::ThousandNames | Shown::Expired | Shown::Strangers) => {
            In::Refused
        }
        (Place::Nbd | Place::Link, Shown::Nothing) => In::Refused,
        (Place::Http, Shown::Nothing) => In::Unknown,
        (Place::Nbd, Shown::Role(Role::NbdClient)) => In::ByRole,
        (Place::Nbd, Shown::Role(Role::Node | Role::NbdServer | Role::HttpServer | Role::Admin)) => In::Refused,
        (Place::Nbd | Place::Http, Shown::NoRole | Shown::Pattern) => In::Listed,
        (Place::Http, Shown::Role(Role::Admin | Role::NbdClient)) => In::Listed,
        (Place::Http, Shown::Role(Role::Node | Role::NbdServer | Role::HttpServer)) => In::Refused,
        (Place::Link, Shown::Role(Role::Node)) => In::ByRole,
        // As identities were before there were roles; which node it is, is asked next.
        (Place::Link, Shown::NoRole | Shown::Pattern) => In::Unknown,
        (Place::Link, Shown::Role(Role::NbdServer | Role::HttpServer | Role::NbdClient | Role::Admin)) => In::Refused,
    }
}

/// A daemon with NBD and HTTP under TLS. Its first volume has no list; `--http-reader` and `listed` name host.lab, `others`
/// somebody else, `nobody` nobody.
struct Site {
    folder: TempDir,
    authority: Authority,
    daemon: Daemon,
    nbd: u16,
    http: String,
    socket: PathBuf,
}

impl Site {
    fn new(name: &str) -> Site {
        let folder = TempDir::new(name);
        let authority = Authority::new("lab");
        let server = authority.server(&folder, "server", Validity::Current);
        let mut volume = Volume::new(&folder, 16 * MIB, Tier::Flash, IoMode::Threads);
        let nbd = free_port();
        volume.http = free_address();
        let http = format!("https://localhost:{}", volume.http.rsplit_once(':').unwrap().1);
        let file = |name: &str| server.join(name).to_str().unwrap().to_owned();
        let (cert, key, ca) = (file("server-cert.pem"), file("server-key.pem"), file("ca-cert.pem"));
        let nbd_at = format!("tcp:127.0.0.1:{nbd}");
        volume.arguments = [
            "--nbd",
            &nbd_at,
            "--tls-cert",
            &cert,
            "--tls-key",
            &key,
            "--tls-client-ca",
            &ca,
            "--http-tls-cert",
            &cert,
            "--http-tls-key",
            &key,
            "--http-client-ca",
            &ca,
            "--http-reader",
            "dns:host.lab",
            "--http-admin",
            "dns:root.lab",
        ]
        .map(Into::into)
        .to_vec();
        let daemon = volume.start();
        for (name, clients) in [("listed", "dns:host.lab"), ("others", "dns:other.lab"), ("nobody", "none")] {
            let backing = folder.join(name);
            let words = [
                "create",
                name,
                "--backing",
                backing.to_str().unwrap(),
                "--size",
                "4M",
                "--create",
                "--clients",
                clients,
            ];
            daemon.volume_command(words).expect_success();
        }
        Site { folder, authority, daemon, nbd, http, socket: volume.socket() }
    }

    fn uri(&self, export: &str, certificates: &Path) -> String {
        format!("nbds://localhost:{}/{export}?tls-certificates={}", self.nbd, certificates.display())
    }

    /// The exports that are listed; none: not let in.
    fn listed(&self, certificates: &Path) -> Option<BTreeSet<String>> {
        let output = run_tool(MINUTE, "nbdinfo", ["--list", "--json", &self.uri("", certificates)]);
        if !output.status.success() {
            return None;
        }
        let list: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
        let exports = list["exports"].as_array().unwrap();
        Some(exports.iter().map(|export| export["export-name"].as_str().unwrap().to_owned()).collect())
    }

    fn opens(&self, export: &str, certificates: &Path) -> bool {
        run_tool(MINUTE, "nbdinfo", ["--size", &self.uri(export, certificates)]).status.success()
    }

    /// Status of an answer to a request; none: not let in.
    fn asks(&self, certificates: &Path, method: &str, path: &str) -> Option<u32> {
        let file = |name: &str| certificates.join(name).to_str().unwrap().to_owned();
        let (ca, url) = (self.folder.join("server/ca-cert.pem"), format!("{}{path}", self.http));
        let (cert, key) = (file("client-cert.pem"), file("client-key.pem"));
        let mut words = vec!["--cacert", ca.to_str().unwrap(), "--request", method, &url];
        if Path::new(&cert).exists() {
            words.extend(["--cert", &cert, "--key", &key]);
        }
        try_curl(&words).ok().map(|answer| answer.status)
    }
}

fn names(names: &[&str]) -> Option<BTreeSet<String>> {
    Some(names.iter().map(|name| (*name).to_owned()).collect())
}

/// A node whose links listen, and which waits for its coordinator.
struct Node {
    child: Child,
    port: u16,
}

impl Node {
    fn start(folder: &TempDir, authority: &Authority) -> Node {
        let says = Says { dns: &["alpha"], uris: &["forebay:role:node"] };
        let files = authority.anybody(folder, "alpha", says, Validity::Current);
        let pem = |name: &str| std::fs::read_to_string(files.join(name)).unwrap();
        let identity = folder.join("alpha.toml");
        let text = format!(
            "version = 1\ncluster = \"lab\"\ncluster_id = \"{:032x}\"\nname = \"alpha\"\nnode = \"{:016x}\"\n\
             valid_until = \"2100-01-01\"\ncertificate = '''{}'''\nkey = '''{}'''\nauthority = '''{}'''\n",
            7,
            1,
            pem("client-cert.pem"),
            pem("client-key.pem"),
            pem("ca-cert.pem")
        );
        std::fs::write(&identity, text).unwrap();
        run_tool(MINUTE, "chmod", ["600", identity.to_str().unwrap()]).expect_success();
        let (port, config) = (free_port(), folder.join("node.toml"));
        let text = format!(
            "[cluster]\nidentity = \"{}\"\netcd = [\"http://127.0.0.1:1\"]\nport = {port}\n[[link]]\nown = \"127.0.0.1\"\n",
            identity.display()
        );
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new(forebay());
        command.args(["serve", "--http", "off", "--config"]).arg(&config);
        command.arg("--state").arg(folder.join("node-state")).arg("--api").arg(folder.join("node.sock"));
        command.arg("--nbd").arg(format!("unix:{}", folder.join("node-nbd.sock").display()));
        let child = die_with_the_test(&mut command).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let begun = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begun.elapsed() < MINUTE, "the node does not listen for others");
            std::thread::sleep(Duration::from_millis(20));
        }
        Node { child, port }
    }

    /// Calls as another node would, and says whether TLS lets it stay.
    fn lets_stay(&self, certificates: &Path) -> bool {
        let file = |name: &str| certificates.join(name);
        let mut command = Command::new("timeout");
        command
            .args(["-s", "KILL", "20"])
            .arg(require_tool("openssl"))
            .args(["s_client", "-tls1_3", "-ign_eof", "-connect"]);
        command.arg(format!("127.0.0.1:{}", self.port)).arg("-CAfile").arg(file("ca-cert.pem"));
        if file("client-cert.pem").exists() {
            command.arg("-cert").arg(file("client-cert.pem")).arg("-key").arg(file("client-key.pem"));
        }
        // Nothing is said: a caller that is let stay is sent away for that, without an alert.
        let said = run_command(Duration::from_secs(30), command).text();
        assert!(said.contains("CONNECTED"), "{said}");
        !said.contains("alert")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn every_certificate_at_every_listener() {
    let mut site = Site::new("roles");
    let node = Node::start(&site.folder, &site.authority);
    let drain = format!("/v1/volumes/{VOLUME_NAME}/drain");
    for shown in Shown::all() {
        let files = shown.make(&site.folder, &site.authority);
        for place in Place::ALL {
            let decided = decided(place, shown);
            match place {
                Place::Nbd => {
                    let expected = match decided {
                        In::Refused => None,
                        // A pattern is on no list.
                        In::Listed if shown == Shown::Pattern => names(&[]),
                        In::Listed => names(&["listed"]),
                        In::ByRole => names(&[VOLUME_NAME, "listed"]),
                        In::Unknown => unreachable!("NBD asks for a certificate"),
                    };
                    assert_eq!(site.listed(&files), expected, "{shown:?}: what it is told of");
                    for export in [VOLUME_NAME, "listed", "others", "nobody", ""] {
                        let found = if export.is_empty() { VOLUME_NAME } else { export };
                        let may = expected.as_ref().is_some_and(|names| names.contains(found));
                        assert_eq!(site.opens(export, &files), may, "{shown:?} and the export {export:?}");
                    }
                }
                Place::Http => {
                    let looks = match decided {
                        In::Refused => None,
                        In::Listed if shown == Shown::Pattern => Some(403),
                        In::Listed => Some(200),
                        // From this host.
                        In::Unknown => Some(200),
                        In::ByRole => unreachable!("nobody looks by a role alone"),
                    };
                    let changes = match decided {
                        In::Refused => None,
                        In::Unknown => Some(401),
                        In::Listed | In::ByRole => Some(403),
                    };
                    for path in ["/v1/volumes", "/metrics", "/v1/status", "/v1/events"] {
                        assert_eq!(site.asks(&files, "GET", path), looks, "{shown:?}: GET {path}");
                    }
                    assert_eq!(site.asks(&files, "POST", &drain), changes, "{shown:?} and a change");
                }
                Place::Link => {
                    assert_eq!(node.lets_stay(&files), decided != In::Refused, "{shown:?} and another node's link");
                }
            }
        }
    }
    // Who is listed to change, changes; with a role that may not, it does not even look.
    let root = |name: &str, uris: &[&str]| {
        site.authority.anybody(&site.folder, name, Says { dns: &["root.lab"], uris }, Validity::Current)
    };
    site.daemon.assert_healthy();
    for (uris, status) in [(&[][..], 200), (&["forebay:role:admin"], 200), (&["forebay:role:nbd-client"], 403)] {
        let files = root(&format!("root-{}", uris.len() + uris.concat().len()), uris);
        assert_eq!(site.asks(&files, "POST", &drain), Some(status), "{uris:?}");
    }
    // Under TLS and in the clear, whoever comes by the unix socket was let in by its permissions.
    for export in [VOLUME_NAME, "listed", "others", "nobody"] {
        let uri = format!("nbd+unix:///{export}?socket={}", site.socket.display());
        run_tool(MINUTE, "nbdinfo", ["--size", &uri]).expect_success();
    }
}

#[test]
fn a_list_holds_from_the_moment_it_is_given_and_after_a_restart() {
    let folder = TempDir::new("roles-list");
    let authority = Authority::new("lab");
    let server = authority.server(&folder, "server", Validity::Current);
    let mut volume = Volume::new(&folder, 16 * MIB, Tier::Flash, IoMode::Uring);
    let port = free_port();
    volume.arguments = vec!["--nbd".into(), format!("tcp:127.0.0.1:{port}").into()];
    for (flag, file) in
        [("--tls-cert", "server-cert.pem"), ("--tls-key", "server-key.pem"), ("--tls-client-ca", "ca-cert.pem")]
    {
        volume.arguments.extend([flag.into(), server.join(file).into_os_string()]);
    }
    let daemon = volume.start();
    let client = |dns: &str| {
        let says = Says { dns: &[dns], uris: &["forebay:role:nbd-client"] };
        authority.anybody(&folder, dns, says, Validity::Current)
    };
    let (vm1, vm2) = (client("vm1.lab"), client("vm2.lab"));
    let opens = |files: &Path| {
        let uri = format!("nbds://localhost:{port}/{VOLUME_NAME}?tls-certificates={}", files.display());
        run_tool(MINUTE, "nbdinfo", ["--size", &uri]).status.success()
    };
    let set = |daemon: &Daemon, clients: &str| daemon.volume_command(["set", VOLUME_NAME, "--clients", clients]);
    let shown = |daemon: &Daemon| daemon.show()["clients"].clone();
    assert_eq!(shown(&daemon), serde_json::json!("any"));
    assert_eq!([opens(&vm1), opens(&vm2)], [true, true]);

    // A session of who is not on the new list ends; that of who is goes on, and so do those of this host.
    let bridge = |name: &str, files: &Path| {
        let words = [
            "nbd".to_owned(),
            "hostname=localhost".to_owned(),
            format!("port={port}"),
            format!("export={VOLUME_NAME}"),
            "tls=require".to_owned(),
            format!("tls-certificates={}", files.display()),
        ];
        Nbdkit::start_at(&folder.join(name), words)
    };
    let (bridge1, bridge2) = (bridge("bridge1", &vm1), bridge("bridge2", &vm2));
    let mut sessions = [&bridge1, &bridge2].map(|bridge| Client::connect(&bridge.target()).unwrap());
    let mut local = Client::connect(&volume.target()).unwrap();
    let reads = |client: &mut Client| matches!(client.read(0, &mut [0; 4096]), Ok(Ok(())));
    assert!(sessions.iter_mut().all(reads) && reads(&mut local));
    set(&daemon, "dns:vm1.lab,dns:vm3.lab").expect_success();
    assert_eq!(sessions.each_mut().map(reads), [true, false], "of vm1 and vm2");
    assert!(reads(&mut local));
    assert_eq!(shown(&daemon), serde_json::json!(["dns:vm1.lab", "dns:vm3.lab"]));
    let text = daemon.volume_command(["show", VOLUME_NAME]).expect_success().stdout;
    assert!(text.contains("by TLS    dns:vm1.lab, dns:vm3.lab"), "{text}");
    assert_eq!([opens(&vm1), opens(&vm2)], [true, false]);

    set(&daemon, "vm1.lab").expect_failure();
    set(&daemon, "dns:*.lab").expect_failure();
    set(&daemon, "uri:forebay:role:nbd-client").expect_failure();
    drop(sessions);
    daemon.kill9();
    let daemon = volume.start();
    assert_eq!([opens(&vm1), opens(&vm2)], [true, false], "after a kill");
    set(&daemon, "none").expect_success();
    assert_eq!([opens(&vm1), opens(&vm2)], [false, false]);
    set(&daemon, "any").expect_success();
    assert_eq!([opens(&vm1), opens(&vm2)], [true, true]);

    // By a fingerprint, as another program prints it; and over TCP in the clear nobody is on a list.
    let printed = run_tool(
        MINUTE,
        "openssl",
        ["x509", "-noout", "-fingerprint", "-sha256", "-in", vm2.join("client-cert.pem").to_str().unwrap()],
    );
    let printed = printed.expect_success().stdout.trim().rsplit_once('=').unwrap().1.to_owned();
    set(&daemon, &format!("sha256:{printed}")).expect_success();
    assert_eq!([opens(&vm1), opens(&vm2)], [false, true]);
    daemon.stop(MINUTE);
    volume.arguments = vec!["--nbd".into(), format!("tcp:127.0.0.1:{port}").into()];
    let daemon = volume.start();
    let plain = Target { address: Address::Tcp(format!("127.0.0.1:{port}")), ..volume.target() };
    assert!(Client::connect(&plain).is_err(), "nobody without a name is on a list");
    set(&daemon, "any").expect_success();
    assert!(Client::connect(&plain).is_ok(), "the operator has let everybody in");
}

fn node_command(words: &[&str]) -> Output {
    let mut command = Command::new(forebay());
    command.arg("node").args(words);
    run_command(MINUTE, command)
}

#[test]
fn what_certify_makes_is_good_for_its_role_and_nothing_else() {
    let folder = TempDir::new("roles-certify");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let ca = path("ca");
    node_command(&["init-ca", "--cluster", "lab", "--authority", &ca]).expect_success();
    for (name, role) in
        [("localhost", "nbd-server"), ("localhost", "http-server"), ("vm1.lab", "nbd-client"), ("me.lab", "admin")]
    {
        node_command(&["certify", name, "127.0.0.1", "--role", role, "--to", &path(role), "--authority", &ca])
            .expect_success();
    }
    node_command(&["certify", "x.lab", "--role", "root", "--to", &path("root"), "--authority", &ca]).expect_failure();
    let (nbd, http) = (free_port(), free_address());
    let volume = |nbd_role: &str, http_role: &str| {
        let mut volume = Volume::new(&folder, 16 * MIB, Tier::Flash, IoMode::Threads);
        volume.http = http.clone();
        let file = |role: &str, kind: &str| {
            path(&format!("{role}/{}-{kind}.pem", if role.ends_with("server") { "server" } else { "client" }))
        };
        let ca = path("nbd-client/ca-cert.pem");
        volume.arguments = [
            "--nbd".to_owned(),
            format!("tcp:127.0.0.1:{nbd}"),
            "--tls-cert".to_owned(),
            file(nbd_role, "cert"),
            "--tls-key".to_owned(),
            file(nbd_role, "key"),
            "--tls-client-ca".to_owned(),
            ca.clone(),
            "--http-tls-cert".to_owned(),
            file(http_role, "cert"),
            "--http-tls-key".to_owned(),
            file(http_role, "key"),
            "--http-client-ca".to_owned(),
            ca,
            "--http-admin".to_owned(),
            "dns:me.lab".to_owned(),
        ]
        .map(Into::into)
        .to_vec();
        volume
    };
    for (nbd_role, http_role) in [
        ("http-server", "http-server"),
        ("nbd-client", "http-server"),
        ("nbd-server", "nbd-server"),
        ("nbd-server", "admin"),
    ] {
        volume(nbd_role, http_role).expect_refusal().says(&["was issued for something else", "has the role"]);
    }
    let daemon = volume("nbd-server", "http-server").start();
    let opens = |role: &str| {
        let uri = format!("nbds://localhost:{nbd}/{VOLUME_NAME}?tls-certificates={}", path(role));
        run_tool(MINUTE, "nbdinfo", ["--size", &uri]).status.success()
    };
    assert_eq!([opens("nbd-client"), opens("admin")], [true, false]);
    let url = format!("https://localhost:{}/v1/login", http.rsplit_once(':').unwrap().1);
    let (cert, key, ca) = (path("admin/client-cert.pem"), path("admin/client-key.pem"), path("admin/ca-cert.pem"));
    let who = try_curl(&["--cacert", &ca, "--cert", &cert, "--key", &key, &url]).unwrap().json();
    assert_eq!(who, serde_json::json!({ "role": "admin", "by": "certificate" }));
    daemon.stop(MINUTE);
}

/// Files below a folder that hold this text.
fn holding(folder: &Path, text: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            holding(&path, text, found);
        } else if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            if bytes.windows(text.len()).any(|window| window == text.as_bytes()) {
                found.push(path);
            }
        }
    }
}

#[test]
fn the_token_is_in_its_file_and_on_a_terminal_and_nowhere_else() {
    let folder = TempDir::new("roles-token");
    let mut volume = Volume::new(&folder, 16 * MIB, Tier::Flash, IoMode::Threads);
    volume.http = free_address();
    let daemon = volume.start();
    let file = volume.state().join("token");
    let token = std::fs::read_to_string(&file).unwrap().trim().to_owned();
    let page = format!("http://{}/", volume.http);

    // Used by a header, by a login, and wrongly in an address.
    let header = format!("Authorization: Bearer {token}");
    let drain = format!("{page}v1/volumes/{VOLUME_NAME}/drain");
    assert_eq!(try_curl(&["--request", "POST", "--header", &header, &drain]).unwrap().status, 200);
    let form = format!("token={token}");
    assert_eq!(try_curl(&["--data", &form, &format!("{page}v1/login")]).unwrap().status, 303);
    assert_eq!(try_curl(&[&format!("{page}v1/volumes?token={token}")]).unwrap().status, 200);
    assert_eq!(try_curl(&["--request", "POST", &format!("{drain}?token={token}")]).unwrap().status, 401);

    // In a pipe: where it is.
    let piped = daemon.command(["dashboard"]).expect_success();
    assert_eq!(piped.stdout.trim(), page);
    assert!(piped.text().contains(file.to_str().unwrap()) && !piped.text().contains(&token), "{}", piped.text());
    let json = daemon.command(["dashboard", "--json"]).expect_success();
    assert!(json.stdout.contains(file.to_str().unwrap()) && !json.text().contains(&token), "{}", json.text());
    // On a terminal: the link.
    let typed = folder.join("typed");
    let command = format!("{} dashboard --api {}", forebay().display(), volume.api().display());
    run_tool(MINUTE, "script", ["--quiet", "--command", &command, typed.to_str().unwrap()]).expect_success();
    let seen = std::fs::read_to_string(&typed).unwrap();
    assert!(seen.contains(&format!("{page}#token={token}")), "{seen}");
    std::fs::remove_file(&typed).unwrap();

    let arguments = std::fs::read(format!("/proc/{}/cmdline", daemon.pid())).unwrap();
    assert!(!String::from_utf8_lossy(&arguments).contains(&token));
    assert!(!daemon.stop(MINUTE).contains(&token));
    let mut found = Vec::new();
    holding(folder.path(), &token, &mut found);
    assert_eq!(found, [file], "its file, and neither the log nor the history nor the events");
}
