//! Who may do what over HTTP: tokens with roles, sessions of browsers, client certificates, and what every answer says to a
//! browser about other sites.

use forebay_tests::certificates::{Authority, Says, Validity};
use forebay_tests::curl::{Answer, curl, free_address, try_curl};
use forebay_tests::harness::{Daemon, IoMode, TempDir, Tier, VOLUME_NAME, Volume, skip};
use serde_json::json;
use std::net::{TcpStream, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const MINUTE: Duration = Duration::from_secs(60);

struct Site {
    volume: Volume,
    daemon: Daemon,
    url: String,
}

impl Site {
    fn new(folder: &TempDir, arguments: &[&Path]) -> Site {
        let mut volume = Volume::new(folder, 32 * MIB, Tier::Flash, IoMode::Uring);
        volume.http = free_address();
        let flags = ["--http-tls-cert", "--http-tls-key", "--http-client-ca"];
        for (flag, path) in flags.iter().zip(arguments) {
            volume.arguments.extend([(*flag).into(), path.as_os_str().to_owned()]);
        }
        // Lists of certificates are flags and names as they are.
        volume.arguments.extend(arguments.iter().skip(flags.len()).map(|word| word.as_os_str().to_owned()));
        let scheme = if arguments.is_empty() { "http" } else { "https" };
        let url = format!("{scheme}://localhost:{}", volume.http.rsplit_once(':').unwrap().1);
        Site { daemon: volume.start(), volume, url }
    }

    fn token(&self, name: &str) -> String {
        std::fs::read_to_string(self.volume.state().join(name)).unwrap().trim().to_owned()
    }

    fn bearer(&self, name: &str) -> String {
        format!("Authorization: Bearer {}", self.token(name))
    }

    fn get(&self, path: &str, more: &[&str]) -> Answer {
        curl(&[&[&*format!("{}{path}", self.url)], more].concat())
    }

    /// A change that hurts nobody.
    fn drain(&self, more: &[&str]) -> Answer {
        self.get(&format!("/v1/volumes/{VOLUME_NAME}/drain"), &[&["--request", "POST"], more].concat())
    }

    fn log_in(&self, token: &str, more: &[&str]) -> Answer {
        let body = json!({ "token": token }).to_string();
        let kind = "Content-Type: application/json";
        self.get("/v1/login", &[&["--request", "POST", "--header", kind, "--data", &body], more].concat())
    }
}

fn cookie_of(answer: &Answer) -> String {
    let set = answer.header("set-cookie").unwrap_or_else(|| panic!("no cookie: {}", answer.head));
    format!("Cookie: {}", set.split(';').next().unwrap())
}

#[test]
fn tokens_and_sessions_have_roles() {
    let folder = TempDir::new("roles");
    let site = Site::new(&folder, &[]);
    let (admin, reader) = (site.bearer("token"), site.bearer("token-read"));
    assert_eq!(site.get("/v1/volumes", &["--header", &reader]).status, 200);
    let refused = site.drain(&["--header", &reader]);
    assert!(refused.status == 403 && refused.body.contains("may only look"), "{refused:?}");
    assert_eq!(site.drain(&["--header", &admin]).status, 200);
    let wrong = site.get("/v1/volumes", &["--header", "Authorization: Bearer 0123"]);
    assert!(wrong.status == 401 && wrong.body.contains("token-read"), "told, although this host needs none: {wrong:?}");

    // Who am I?
    let who = |more: &[&str]| site.get("/v1/login", more).json();
    assert_eq!(who(&[]), json!({ "role": "read-only", "by": "loopback" }));
    assert_eq!(who(&["--header", &admin]), json!({ "role": "admin", "by": "token" }));
    let local = ["--unix-socket", site.volume.api().to_str().unwrap(), "http://localhost/v1/login"].map(str::to_owned);
    let local = curl(&local.each_ref().map(String::as_str)).json();
    assert_eq!(local, json!({ "role": "admin", "by": "unix-socket" }));

    // A session changes with its header only, and ends when it is told to.
    let session = site.log_in(&site.token("token"), &[]);
    assert_eq!((session.status, session.json()), (200, json!({ "role": "admin", "by": "session" })));
    let set = session.header("set-cookie").unwrap();
    assert!(set.contains("HttpOnly") && set.contains("SameSite=Strict") && !set.contains("Secure"), "{set}");
    let cookie = cookie_of(&session);
    assert_eq!(who(&["--header", &cookie]), json!({ "role": "admin", "by": "session" }));
    let refused = site.drain(&["--header", &cookie]);
    assert!(refused.status == 403 && refused.body.contains("X-Forebay"), "{refused:?}");
    assert_eq!(site.drain(&["--header", &cookie, "--header", "X-Forebay: 1"]).status, 200);
    let elsewhere = ["--header", &cookie, "--header", "X-Forebay: 1", "--header", "Origin: http://elsewhere.example"];
    assert_eq!(site.drain(&elsewhere).status, 403);
    let by_link = ["--header", &cookie, "--header", "Sec-Fetch-Site: cross-site"];
    assert_eq!(site.get("/v1/volumes", &by_link).status, 403);
    let ended = site.get("/v1/login", &["--request", "DELETE", "--header", &cookie]);
    assert!(ended.status == 204 && ended.header("set-cookie").unwrap().contains("Max-Age=0"), "{ended:?}");
    assert_eq!(site.drain(&["--header", &cookie, "--header", "X-Forebay: 1"]).status, 401);

    // One of a reader stays one.
    let cookie = cookie_of(&site.log_in(&site.token("token-read"), &[]));
    assert_eq!(site.drain(&["--header", &cookie, "--header", "X-Forebay: 1"]).status, 403);

    let wrong = site.log_in("guessed", &[]);
    assert!(wrong.status == 401 && wrong.header("set-cookie").is_none(), "{wrong:?}");
    let garbage = site.get("/v1/login", &["--request", "POST", "--data", "[]", "--header", "Content-Type: text/plain"]);
    assert_eq!(garbage.status, 400, "{garbage:?}");
    let stranger = ["--header", "Origin: http://elsewhere.example"];
    assert_eq!(site.log_in(&site.token("token"), &stranger).status, 403, "nobody is logged in by another site");
    site.daemon.stop(MINUTE);
}

#[test]
fn a_form_logs_in_without_a_script() {
    let folder = TempDir::new("form");
    let site = Site::new(&folder, &[]);
    let page = site.get("/login", &[]);
    assert!(page.status == 200 && page.body.contains("action=\"/v1/login\""), "{page:?}");
    let done = site.get("/v1/login", &["--data", &format!("token={}", site.token("token"))]);
    assert!(done.status == 303 && done.header("location") == Some("/"), "{done:?}");
    let cookie = cookie_of(&done);
    assert_eq!(site.drain(&["--header", &cookie, "--header", "X-Forebay: 1"]).status, 200);
    let again = site.get("/v1/login", &["--data", "token=guessed"]);
    assert!(again.status == 401 && again.body.contains("<form") && again.body.contains("not a token"), "{again:?}");
    site.daemon.stop(MINUTE);
}

#[test]
fn every_answer_tells_browsers_to_keep_other_sites_out() {
    let folder = TempDir::new("headers");
    let site = Site::new(&folder, &[]);
    for (path, more, status) in [
        ("/", &[][..], 200),
        ("/assets/app.js", &[], 200),
        ("/login", &[], 200),
        ("/v1/volumes", &[], 200),
        ("/metrics", &[], 200),
        ("/v1/volumes/nobody", &[], 404),
        ("/nothing", &[], 404),
        ("/v1/volumes", &["--request", "POST"], 401),
        ("/v1/volumes", &["--header", "Host: rebound.example"], 421),
        ("/v1/volumes", &["--header", "Origin: http://elsewhere.example"], 403),
        ("/v1/volumes", &["--request", "OPTIONS", "--header", "Access-Control-Request-Method: POST"], 401),
    ] {
        let answer = site.get(path, more);
        assert_eq!(answer.status, status, "{path} {more:?}: {answer:?}");
        let policy = answer.header("content-security-policy").unwrap_or_else(|| panic!("{path}: {}", answer.head));
        assert!(policy.starts_with("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");
        assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("x-frame-options"), Some("DENY"));
        assert_eq!(answer.header("cross-origin-resource-policy"), Some("same-origin"));
        assert!(!answer.head.to_lowercase().contains("access-control-allow"), "{path}: {}", answer.head);
    }
    site.daemon.stop(MINUTE);
}

#[test]
fn certificates_let_in_and_passwords_stay_secret_under_tls() {
    let folder = TempDir::new("https");
    let (authority, strangers) = (Authority::new("lab"), Authority::new("strangers"));
    let server = authority.server(&folder, "server", Validity::Current);
    let member = |name: &str, dns: &str, uris: &[&str]| {
        authority.anybody(&folder, name, Says { dns: &[dns], uris }, Validity::Current)
    };
    let (admin, reader) = (member("admin", "admin.lab", &[]), member("reader", "reader.lab", &[]));
    let (client, unknown) =
        (member("client", "vm1.lab", &["forebay:role:nbd-client"]), member("unknown", "x.lab", &[]));
    let stranger = authority.client(&folder, "stranger", Some((&strangers, Validity::Current)));
    let ca = server.join("ca-cert.pem");
    let lists = ["--http-admin", "dns:admin.lab", "--http-reader", "dns:reader.lab"].map(Path::new);
    let files = [&*server.join("server-cert.pem"), &server.join("server-key.pem"), &ca];
    let mut site = Site::new(&folder, &[&files[..], &lists].concat());
    let ca = ca.to_str().unwrap();
    let files = |client: &Path| {
        ["client-cert.pem", "client-key.pem"].map(|name| client.join(name).to_str().unwrap().to_owned())
    };

    // Those who say nothing keep nobody waiting.
    let silent: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(&site.volume.http).unwrap()).collect();
    let begun = Instant::now();
    assert_eq!(site.get("/v1/volumes", &["--cacert", ca]).status, 200, "this host looks without login");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    drop(silent);

    assert_eq!(site.drain(&["--cacert", ca]).status, 401);
    for (who, role, looks, changes) in [
        (&admin, json!("admin"), 200, 200),
        (&reader, json!("read-only"), 200, 403),
        (&client, json!(null), 403, 403),
        (&unknown, json!(null), 403, 403),
    ] {
        let [cert, key] = files(who);
        let with_certificate = ["--cacert", ca, "--cert", &cert, "--key", &key];
        assert_eq!(site.get("/v1/login", &with_certificate).json(), json!({ "role": role, "by": "certificate" }));
        let looked = site.get("/v1/volumes", &with_certificate);
        assert_eq!((looked.status, site.drain(&with_certificate).status), (looks, changes), "{who:?}");
        assert!(looks == 200 || (!looked.body.contains(VOLUME_NAME) && looked.body.contains("admins")), "{looked:?}");
        assert_eq!(site.get("/metrics", &with_certificate).status, looks, "{who:?}");
    }
    let [cert, key] = files(&stranger);
    let refused = try_curl(&["--cacert", ca, "--cert", &cert, "--key", &key, &format!("{}/v1/volumes", site.url)]);
    assert!(refused.is_err(), "{refused:?}");

    let session = site.log_in(&site.token("token"), &["--cacert", ca]);
    assert!(session.header("set-cookie").unwrap().contains("; Secure"), "{}", session.head);
    let cookie = cookie_of(&session);
    let changes = ["--cacert", ca, "--header", &cookie, "--header", "X-Forebay: 1"];
    assert_eq!(site.drain(&changes).status, 200);
    let own = format!("Origin: {}", site.url);
    assert_eq!(site.drain(&[&changes[..], &["--header", &own]].concat()).status, 200);
    let plain = own.replace("https", "http");
    assert_eq!(site.drain(&[&changes[..], &["--header", &plain]].concat()).status, 403);
    assert!(try_curl(&[&site.url.replace("https", "http")]).is_err(), "in the clear nothing is told");
    site.daemon.assert_healthy();
    assert!(site.daemon.stop(MINUTE).contains("by certificate: 1 listed to change, 1 to look"));
}

#[test]
fn beyond_this_host_nothing_is_told_without_a_token() {
    // The address that this machine would go out by; nothing is sent.
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    let own = socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr());
    let Ok(own) = own.map(|address| address.ip()) else {
        return skip("this machine has no address but those of loopback");
    };
    let folder = TempDir::new("beyond");
    let mut volume = Volume::new(&folder, 32 * MIB, Tier::Flash, IoMode::Threads);
    let port = free_address().rsplit_once(':').unwrap().1.to_owned();
    volume.http = format!("0.0.0.0:{port}");
    let daemon = volume.start();
    let site = Site { url: format!("http://{own}:{port}"), volume, daemon };
    for path in ["/v1/volumes", "/v1/status", "/metrics", "/v1/openapi.json", "/v1/audit"] {
        let refused = site.get(path, &[]);
        assert!(refused.status == 401 && refused.body.contains("token-read"), "{path}: {refused:?}");
        assert_ne!(site.get(path, &["--header", &site.bearer("token-read")]).status, 401, "{path}");
    }
    assert_eq!(site.get("/v1/login", &[]).json(), json!({ "role": null, "by": null }));
    assert_eq!((site.get("/", &[]).status, site.get("/login", &[]).status), (200, 200), "pages hold nothing");
    let said = site.daemon.stop(MINUTE);
    assert!(said.contains("not encrypted") && said.contains("--http-tls-cert"), "{said}");
}

#[test]
fn a_start_says_what_is_wrong_with_the_files() {
    let folder = TempDir::new("https-start");
    let authority = Authority::new("lab");
    let server = authority.server(&folder, "server", Validity::Current);
    let other = authority.server(&folder, "other", Validity::Current);
    let (cert, key) = (server.join("server-cert.pem"), server.join("server-key.pem"));
    let refused = |arguments: &[&Path], words: &[&str]| {
        let mut volume = Volume::new(&folder, 32 * MIB, Tier::Flash, IoMode::Threads);
        volume.http = free_address();
        for (flag, path) in ["--http-tls-cert", "--http-tls-key", "--http-client-ca"].iter().zip(arguments) {
            volume.arguments.extend([(*flag).into(), path.as_os_str().to_owned()]);
        }
        volume.expect_refusal().says(words);
    };
    refused(&[Path::new("/absent.pem"), &key], &["/absent.pem", "--http-tls-cert"]);
    refused(&[&cert, &other.join("server-key.pem")], &["other/server-key.pem", "HTTP over TLS"]);
    refused(&[&cert, &key, &key], &["server-key.pem", "authority of clients"]);
}
