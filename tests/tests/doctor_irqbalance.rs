//! A real irqbalance leaves alone what the doctor has placed: it asks by `packaging/irqbalance-policy`, and is answered from the journal.
//!
//! It runs in a namespace of mounts where `/proc/irq` is a folder of the test: no interrupt of this machine is moved.

use forebay_tests::harness::{TempDir, forebay, require_tool, run_command, run_script, skip, workspace};
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);
/// What every interrupt's file holds until irqbalance writes it: more CPUs than it would ever write for one.
const UNMOVED: &str = "ffff,ffffffff\n";
const CARD: &str = "0000:81:00.0";

/// `$1` is the folder for `/proc/irq`, `$2` the program that is asked, `$3` irqbalance.
const RUN: &str = r#"
set -eu
mount --make-rprivate /
mount --bind "$1" /proc/irq
mount -t tmpfs none /run
mkdir /run/irqbalance
exec "$3" --foreground --interval 1 --policyscript="$2"
"#;

struct Balancer {
    child: Child,
    folder: TempDir,
}

impl Balancer {
    fn start() -> Balancer {
        let folder = TempDir::new("irqbalance");
        for entry in std::fs::read_dir("/proc/irq").unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.parse::<u32>().is_ok() {
                let of = folder.join(&format!("irq/{name}"));
                std::fs::create_dir_all(&of).unwrap();
                std::fs::write(of.join("node"), "0\n").unwrap();
                std::fs::write(of.join("smp_affinity"), UNMOVED).unwrap();
            }
        }
        let policy = std::fs::read_to_string(workspace().join("packaging/irqbalance-policy")).unwrap();
        let host = folder.join("host");
        let doctor = format!("{} doctor --sysroot {}", forebay().display(), host.display());
        let asked = policy.replace("/usr/bin/forebay doctor", &doctor);
        assert_ne!(asked, policy, "it runs the program of this build on the host of the test");
        std::fs::write(folder.join("policy"), asked).unwrap();
        std::fs::set_permissions(folder.join("policy"), PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::create_dir(&host).unwrap();
        let mut command = Command::new("unshare");
        command.args(["-m", "bash", "-c", RUN, "run"]).arg(folder.join("irq")).arg(folder.join("policy"));
        command.arg(require_tool("irqbalance")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: prctl is async-signal-safe, and nothing else runs between fork and exec.
        let child = unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            })
        };
        Balancer { child: child.spawn().unwrap(), folder }
    }

    /// Interrupts that it has moved.
    fn moved(&self) -> BTreeSet<u32> {
        let all = std::fs::read_dir(self.folder.join("irq")).unwrap().map(|entry| entry.unwrap());
        let moved = all.filter(|entry| {
            let reads = std::fs::read_to_string(entry.path().join("smp_affinity")).unwrap();
            // It truncates before it writes.
            !reads.is_empty() && reads != UNMOVED
        });
        moved.map(|entry| entry.file_name().into_string().unwrap().parse().unwrap()).collect()
    }

    /// Forgets what was moved, and has all of it asked about again.
    fn anew(&self) {
        for number in self.moved() {
            std::fs::write(self.folder.join(&format!("irq/{number}/smp_affinity")), UNMOVED).unwrap();
        }
        // SAFETY: two numbers; the process is this test's child.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, libc::SIGHUP) }, 0);
    }

    fn wait_until_moved(&mut self, what: &BTreeSet<u32>) {
        let begun = Instant::now();
        while !what.is_subset(&self.moved()) {
            assert!(begun.elapsed() < MINUTE, "moved {:?}, waited in vain for {what:?}", self.moved());
            assert_eq!(self.child.try_wait().unwrap(), None, "irqbalance has ended");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn doctor(&self, arguments: &[&str]) {
        let mut command = Command::new(forebay());
        command.args(["doctor", "--sysroot"]).arg(self.folder.join("host")).args(arguments);
        run_command(MINUTE, command).expect_success();
    }

    /// The host as the doctor sees it: two sockets, and a card at the second with this interrupt there, or at the first.
    fn host(&self, interrupt: u32, cpus: &str) {
        let files = [
            ("proc/sys/kernel/random/boot_id".to_owned(), "this\n"),
            ("sys/devices/system/cpu/online".to_owned(), "0-3\n"),
            ("sys/devices/system/node/node0/cpulist".to_owned(), "0-1\n"),
            ("sys/devices/system/node/node1/cpulist".to_owned(), "2-3\n"),
            (format!("sys/bus/pci/devices/{CARD}/class"), "0x020000\n"),
            (format!("sys/bus/pci/devices/{CARD}/numa_node"), "1\n"),
            (format!("sys/bus/pci/devices/{CARD}/msi_irqs/{interrupt}"), "msix\n"),
            (format!("proc/irq/{interrupt}/smp_affinity_list"), cpus),
        ];
        for (path, text) in files {
            let path = self.folder.join("host").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn what_was_placed_is_left_alone_until_it_is_taken_back() {
    let may = run_script(MINUTE, "unshare -m true", [""; 0]);
    if !may.status.success() {
        skip(&format!("an irqbalance with interrupts of its own: {}", may.stderr.trim()));
        return;
    }
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        skip("irqbalance: it ends by itself on one CPU");
        return;
    }
    let mut balancer = Balancer::start();
    // Where the machine's interrupts are all of a kind that it leaves alone, it has nothing to be kept from.
    let begun = Instant::now();
    while balancer.moved().len() < 2 && begun.elapsed() < Duration::from_secs(20) {
        assert_eq!(balancer.child.try_wait().unwrap(), None, "irqbalance has ended");
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(Duration::from_secs(2));
    let all = balancer.moved();
    let Some(&placed) = all.first().filter(|_| all.len() > 1) else {
        skip(&format!("irqbalance moves {} of this machine's interrupts, and two are needed", all.len()));
        return;
    };
    balancer.host(placed, "2-3\n");
    balancer.doctor(&["baseline", "save"]);
    balancer.host(placed, "0-1\n");
    balancer.doctor(&["--apply", "irq-moved"]);
    balancer.anew();
    let others: BTreeSet<u32> = all.iter().copied().filter(|number| *number != placed).collect();
    balancer.wait_until_moved(&others);
    assert!(!balancer.moved().contains(&placed), "{placed} was placed, and irqbalance has moved it");
    balancer.doctor(&["--revert"]);
    balancer.anew();
    balancer.wait_until_moved(&all);
}
