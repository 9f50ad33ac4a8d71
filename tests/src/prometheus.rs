//! A real Prometheus in a folder of the test's, scraping each second.

use crate::curl::{curl, free_address, try_curl};
use crate::harness::{TempDir, die_with_the_test, require_tool};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The server; killed when dropped.
#[derive(Debug)]
pub struct Prometheus {
    child: Child,
    address: String,
}

impl Prometheus {
    /// Scrapes this address as job `forebay`, and evaluates these rules.
    #[track_caller]
    pub fn start(folder: &TempDir, target: &str, rules: &Path) -> Prometheus {
        let address = free_address();
        let config = folder.join("prometheus.yml");
        let text = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: [{:?}]\n\
             scrape_configs: [{{ job_name: forebay, static_configs: [{{ targets: [{target:?}] }}] }}]\n",
            rules
        );
        std::fs::write(&config, text).expect("the test's folder takes a file");
        let said = std::fs::File::create(folder.join("prometheus.log")).expect("the test's folder takes a file");
        let mut command = Command::new(require_tool("prometheus"));
        command.arg("--config.file").arg(&config);
        command.arg("--storage.tsdb.path").arg(folder.join("prometheus-data"));
        command.args(["--web.listen-address", &address, "--log.level", "warn"]);
        die_with_the_test(&mut command).stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        let mut child = command.spawn().unwrap_or_else(|e| panic!("start {command:?}: {e}"));
        let begun = Instant::now();
        while !try_curl(&[&format!("http://{address}/-/ready")]).is_ok_and(|answer| answer.status == 200) {
            let ended = child.try_wait().expect("a child can be waited for");
            let log = || std::fs::read_to_string(folder.join("prometheus.log")).unwrap_or_default();
            assert!(ended.is_none(), "prometheus ended: {}", log());
            assert!(begun.elapsed() < Duration::from_secs(60), "prometheus is not ready after a minute: {}", log());
            std::thread::sleep(Duration::from_millis(100));
        }
        Prometheus { child, address }
    }

    /// `data` of an answer of its API.
    #[track_caller]
    pub fn get(&self, path: &str, parameters: &[(&str, &str)]) -> Value {
        let parameters: Vec<String> = parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let url = format!("http://{}/api/v1/{path}", self.address);
        let mut arguments = vec!["--get", url.as_str()];
        for parameter in &parameters {
            arguments.extend(["--data-urlencode", parameter]);
        }
        let answer = curl(&arguments);
        let body = answer.json();
        assert_eq!(body["status"], "success", "{path} {parameters:?}: {body}");
        body["data"].clone()
    }

    /// The samples of an expression now.
    #[track_caller]
    pub fn query(&self, expression: &str) -> Vec<Value> {
        self.get("query", &[("query", expression)])["result"].as_array().expect("samples").clone()
    }

    /// Names of the alerts that fire.
    #[track_caller]
    pub fn firing(&self) -> Vec<String> {
        let alerts = self.get("alerts", &[]);
        let alerts = alerts["alerts"].as_array().expect("alerts").iter();
        let name = |alert: &Value| alert["labels"]["alertname"].as_str().expect("a name").to_owned();
        alerts.filter(|alert| alert["state"] == "firing").map(name).collect()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // Both fail only for a child that has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
