//! Strangers who come by the network: what they cost is not taken from the threads that serve volumes.

use forebay_tests::certificates::{Authority, Validity};
use forebay_tests::cluster::Cluster;
use forebay_tests::harness::{IoMode, TempDir, Tier, VOLUME_NAME, Volume, free_port, run_tool};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);
/// TLS handshakes that fail.
const ATTEMPTS: usize = 100;

/// How long a thread of this name has run.
fn ran(pid: u32, thread: &str) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the daemon runs");
    let is_it = |task: &PathBuf| std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == thread);
    let task = tasks.flatten().map(|task| task.path()).find(is_it);
    let text = task.and_then(|task| std::fs::read_to_string(task.join("schedstat")).ok()).unwrap_or_default();
    Duration::from_nanos(text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or_default())
}

/// Strangers come. The data path works for its volumes, and no longer than it does without them; who hears them works.
#[track_caller]
fn assert_data_path_is_spared(pid: u32, strangers: impl FnOnce()) {
    let now = || ["shard-0", "acceptor"].map(|thread| ran(pid, thread));
    let (begun, before) = (Instant::now(), now());
    strangers();
    let after = now();
    let [data_path, acceptor] = [0, 1].map(|thread| after[thread].saturating_sub(before[thread]));
    std::thread::sleep(begun.elapsed());
    let rest = now()[0].saturating_sub(after[0]);
    assert!(
        acceptor > data_path.saturating_sub(rest * 2) * 4,
        "{ATTEMPTS} strangers cost the data path {data_path:?}, which takes {rest:?} without them, and who hears them {acceptor:?}"
    );
}

#[test]
fn clients_without_a_right_certificate_cost_the_data_path_nothing() {
    let folder = TempDir::new("strangers");
    let (authority, elsewhere) = (Authority::new("authority"), Authority::new("elsewhere"));
    let server = authority.server(&folder, "server", Validity::Current);
    let mut volume = Volume::new(&folder, 64 << 20, Tier::Memory, IoMode::Threads);
    let port = free_port();
    volume.arguments = vec!["--nbd".into(), format!("tcp:127.0.0.1:{port}").into()];
    for (flag, file) in
        [("--tls-cert", "server-cert.pem"), ("--tls-key", "server-key.pem"), ("--tls-client-ca", "ca-cert.pem")]
    {
        volume.arguments.extend([flag.into(), server.join(file).into_os_string()]);
    }
    let mut daemon = volume.start();
    let uri = |certificates: PathBuf| {
        format!("nbds://localhost:{port}/{VOLUME_NAME}?tls-certificates={}", certificates.display())
    };
    let strange = uri(authority.client(&folder, "strange", Some((&elsewhere, Validity::Current))));
    assert_data_path_is_spared(daemon.pid(), || {
        for _ in 0..ATTEMPTS {
            run_tool(MINUTE, "nbdinfo", ["--size", &strange]).expect_failure();
        }
    });
    // Who is none comes in at once, however many have failed before.
    let member = uri(authority.client(&folder, "member", Some((&authority, Validity::Current))));
    run_tool(MINUTE, "nbdinfo", ["--size", &member]).expect_success();
    daemon.assert_healthy();
}

#[test]
fn callers_at_the_door_of_nodes_cost_the_data_path_nothing() {
    let Some(cluster) = Cluster::new("strangers", 2) else { return };
    cluster.serve_with_a_copy("memory");
    let nodes = cluster.try_command(0, &["node", "list"]).expect("nodes");
    let address = nodes[0]["addresses"][0].as_str().expect("an address").to_owned();
    assert_data_path_is_spared(cluster.pid(0), || {
        for _ in 0..ATTEMPTS {
            let mut caller = cluster.host(1).namespace().command("openssl");
            caller.args(["s_client", "-connect", &address]).stdin(Stdio::null()).stdout(Stdio::null());
            caller.stderr(Stdio::null()).status().expect("openssl runs");
        }
    });
    cluster.wait_for_copies(0);
}
