//! A BMC: OpenIPMI's simulator, which switches a process on and off that stands for a host.

use crate::harness::{die_with_the_test, free_port, is_bound, require_tool, run_command};
use crate::hosts::Namespace;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
/// The password of its user.
const PASSWORD: &str = "open-sesame";

/// The BMC, with a process for the host whose power it has. The host writes as long as it lives.
pub struct Bmc {
    child: Child,
    port: u16,
    host: PathBuf,
    written: PathBuf,
    /// The file with its password.
    pub password: PathBuf,
    /// The host is the one that it has started, and ends with it.
    own_host: bool,
}

/// What the BMC runs to look at, and change, its host's power. `$1` is its own address.
const CHASSIS: &str = r#"#!/bin/sh
cd "$(dirname "$0")" || exit 1
operation=$2
shift 2
# A killed one that nobody has buried yet is no host any more.
alive() { [ -e host ] && grep -qs ') [^ZX] ' "/proc/$(cat host)/stat"; }
case $operation in
get) for name in "$@"; do
        case $name in power) if alive; then echo power:1; else echo power:0; fi ;; *) echo "$name:0" ;; esac
    done ;;
set) while [ $# -ge 2 ]; do
        case $1:$2 in
        power:0) [ -e stuck ] || ! alive || kill -9 "$(cat host)" ;;
        power:1) alive || ./start ;;
        esac
        shift 2
    done ;;
esac
exit 0
"#;

/// The host: writes a line now and then, and ends by itself when nobody has ended it for long.
const START: &str = r#"#!/bin/sh
cd "$(dirname "$0")" || exit 1
setsid sh -c 'echo $$ >host; i=0; while [ $i -lt 30000 ]; do i=$((i + 1)); echo $i >>written; sleep 0.01; done' \
    </dev/null >/dev/null 2>&1 &
until [ -s host ] && kill -0 "$(cat host)" 2>/dev/null; do sleep 0.01; done
"#;

impl Bmc {
    /// Starts it in a folder of its own, on the loopback of a host where one is named.
    #[track_caller]
    pub fn start(folder: &Path, on: Option<&Namespace>) -> Bmc {
        Bmc::start_with(folder, on, "")
    }

    /// Starts one that also is the board of a virtual machine, whose serial line is to lead to the port that is returned. A processor
    /// on it is too hot, and its log has an error of memory.
    #[track_caller]
    pub fn start_as_a_board(folder: &Path) -> (Bmc, u16) {
        let port = free_port();
        let more = temperature(1, "CPU Temp", 95) + memory_fault();
        (Bmc::begin(folder, None, &format!("serial 15 127.0.0.1 {port} codec VM\n"), &more), port)
    }

    /// The same with what more the simulator is told, as [`temperature`] and [`memory_fault`] say it.
    #[track_caller]
    pub fn start_with(folder: &Path, on: Option<&Namespace>, more: &str) -> Bmc {
        Bmc::begin(folder, on, "", more)
    }

    /// `config` and `more`: more lines of its files.
    #[track_caller]
    fn begin(folder: &Path, on: Option<&Namespace>, config: &str, more: &str) -> Bmc {
        std::fs::create_dir_all(folder).unwrap_or_else(|e| panic!("make {}: {e}", folder.display()));
        let script = |name: &str, text: &str| {
            std::fs::write(folder.join(name), text).unwrap();
            std::fs::set_permissions(folder.join(name), PermissionsExt::from_mode(0o755)).unwrap();
        };
        script("chassis", CHASSIS);
        script("start", START);
        let port = in_network(on, || {
            // A port that was free a moment ago: the kernel does not give it out again at once.
            UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
        });
        let auths = "none md2 md5 straight";
        let config = format!(
            "name \"forebay-test\"\nstartlan 1\naddr 127.0.0.1 {port}\npriv_limit admin\nallowed_auths_callback {auths}\n\
             allowed_auths_user {auths}\nallowed_auths_operator {auths}\nallowed_auths_admin {auths}\n\
             guid a123456789abcdefa123456789abcdef\nendlan\n{config}user 1 true \"\" \"\" user 10 {auths}\n\
             user 2 true \"forebay\" \"{PASSWORD}\" admin 10 {auths}\nchassis_control \"{} 0x20\"\n",
            folder.join("chassis").display()
        );
        std::fs::write(folder.join("lan.conf"), config).unwrap();
        let emulated = format!(
            "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr\n\
             sel_enable 0x20 1000 0x0a\n{more}mc_enable 0x20\n"
        );
        std::fs::write(folder.join("sim.emu"), emulated).unwrap();
        std::fs::create_dir(folder.join("bmc-state")).unwrap();
        let password = folder.join("password");
        std::fs::write(&password, format!("{PASSWORD}\n")).unwrap();
        std::fs::set_permissions(&password, PermissionsExt::from_mode(0o600)).unwrap();
        run_command(LIMIT, Command::new(folder.join("start"))).expect_success();
        let mut command = Command::new(require_tool("ipmi_sim"));
        command.arg("-c").arg(folder.join("lan.conf")).arg("-f").arg(folder.join("sim.emu"));
        command.arg("-s").arg(folder.join("bmc-state")).arg("-n").stdin(Stdio::null()).stdout(Stdio::null());
        if let Some(network) = on {
            network.place(&mut command);
        }
        let child = die_with_the_test(&mut command).spawn().unwrap_or_else(|e| panic!("start {command:?}: {e}"));
        let (host, written) = (folder.join("host"), folder.join("written"));
        let bmc = Bmc { child, port, host, written, password, own_host: true };
        wait_until("the BMC", || in_network(on, || is_bound("udp", port)));
        bmc
    }

    /// Options of the agent that lead to this BMC.
    pub fn options(&self) -> Vec<String> {
        let port = format!("ipport={}", self.port);
        let mut options = Vec::new();
        for option in ["ip=127.0.0.1", &port, "lanplus=1", "cipher=3", "username=forebay"] {
            options.extend(["--option".to_owned(), option.to_owned()]);
        }
        options.extend(["--option-file".to_owned(), format!("password={}", self.password.display())]);
        options
    }

    /// Makes a folder with an `ipmitool` that asks this BMC by the network, as the real one asks its own host's by `/dev/ipmi0`.
    #[track_caller]
    pub fn tool(&self, folder: &Path) {
        std::fs::create_dir_all(folder).unwrap_or_else(|e| panic!("make {}: {e}", folder.display()));
        let (real, tool) = (require_tool("ipmitool"), folder.join("ipmitool"));
        let script = format!(
            "#!/bin/sh\nexec {} -I lanplus -H 127.0.0.1 -p {} -U forebay -f {} -C 3 \"$@\"\n",
            real.display(),
            self.port,
            self.password.display()
        );
        std::fs::write(&tool, script).unwrap();
        std::fs::set_permissions(&tool, PermissionsExt::from_mode(0o755)).unwrap();
    }

    /// The same as a table of a node's config.
    pub fn table(&self, node: &str) -> String {
        format!(
            "[[fence]]\nnode = \"{node}\"\nagent = \"fence_ipmilan\"\noptions = {{ ip = \"127.0.0.1\", ipport = \"{}\", \
             lanplus = \"1\", cipher = \"3\", username = \"forebay\" }}\noption_files = {{ password = \"{}\" }}\n",
            self.port,
            self.password.display()
        )
    }

    /// From now on the machine is this process of the test.
    #[track_caller]
    pub fn stands_for(&mut self, process: u32) {
        let former = self.host();
        std::fs::write(&self.host, format!("{process}\n")).unwrap();
        if std::mem::replace(&mut self.own_host, false) {
            end(former);
        }
    }

    /// The process that is the host now.
    #[track_caller]
    pub fn host(&self) -> u32 {
        std::fs::read_to_string(&self.host).unwrap().trim().parse().expect("the number of a process")
    }

    /// Bytes that the host has written.
    pub fn written(&self) -> u64 {
        std::fs::metadata(&self.written).map_or(0, |metadata| metadata.len())
    }
}

impl Drop for Bmc {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if self.own_host {
            end(self.host());
        }
    }
}

/// A sensor of degrees Celsius that is worth a warning from 80 on and critical from 90 on.
pub fn temperature(number: u8, name: &str, degrees: u8) -> String {
    let length = 43 + name.len() as u8;
    // A full sensor record (IPMI 2.0, table 43-1): whose it is, what it senses, thresholds, units, one degree a count, limits.
    let head = [number, 0, 0x51, 0x01, length, 0x20, 0, number, 0x07, 1, 0x7f, 0x68, 0x01, 0x01];
    let masks = [0, 0, 0, 0, 0x38, 0x38];
    let units = [0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0];
    let limits = [100, 90, 80, 0, 0, 0, 1, 1, 0, 0, 0, 0xc0 | name.len() as u8];
    let record = [&head[..], &masks, &units, &limits, name.as_bytes()].concat();
    let record: Vec<String> = record.iter().map(|byte| format!("{byte:#04x}")).collect();
    format!(
        "sensor_add 0x20 0 {number} 1 1\nsensor_set_threshold 0x20 0 {number} settable 111000 100 90 80 0 0 0\n\
         sensor_set_event_support 0x20 0 {number} enable scanning per-state {0} {0} {0} {0}\n\
         main_sdr_add 0x20 {1}\nsensor_set_value 0x20 0 {number} {degrees} 0\n",
        "000111111000000",
        record.join(" ")
    )
}

/// An entry of the event log: memory that could not be corrected.
pub fn memory_fault() -> &'static str {
    "sel_add 0x20 0x02 0 0 0 0 0x20 0 4 0x0c 0x03 0x6f 0x01 0xff 0xff\n"
}

fn end(process: u32) {
    if lives(process) {
        // SAFETY: no memory is involved; the process is the one that this BMC's host wrote down, and lives.
        unsafe { libc::kill(process as i32, libc::SIGKILL) };
    }
}

fn in_network<T: Send>(network: Option<&Namespace>, code: impl FnOnce() -> T + Send) -> T {
    match network {
        Some(network) => network.run(code),
        None => code(),
    }
}

#[track_caller]
fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < LIMIT, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a process is there, and not only to be waited for.
pub fn lives(pid: u32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    state.rsplit(')').next().is_some_and(|rest| !rest.trim().is_empty() && !rest.trim().starts_with('Z'))
}
