//! What etcd says of itself: alarms, and how near its data is to the quota. Asked now and then, shown, and nothing rests on it.
//!
//! A member that has reached its quota raises an alarm (`NOSPACE`), and from then on the whole etcd takes no write until an operator has made
//! room and taken the alarm back. Volumes are served meanwhile, and nothing about who serves them can change.

use super::{Client, Members};
use forebay_api::config::endpoint::Endpoint;
use hyper::StatusCode;
use serde_json::Value;

/// Near the quota is from so many percent of it on.
const NEAR_PERCENT: u64 = 80;
/// Where a member says what its quota is, before etcd 3.6 says it with its status.
const QUOTA_METRIC: &str = "etcd_server_quota_backend_bytes ";

/// What can be the matter with etcd.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TroubleKind {
    /// It takes no writes: its data has reached the quota.
    NoSpace,
    /// It has found the data of a member damaged.
    Corrupt,
    /// Another alarm of its own.
    Alarm,
    /// A member's data is near the quota.
    NearlyFull,
}

impl TroubleKind {
    /// Its word in reports, which scripts may rely upon.
    pub fn code(self) -> &'static str {
        match self {
            TroubleKind::NoSpace => "etcd-no-space",
            TroubleKind::Corrupt => "etcd-corrupt",
            TroubleKind::Alarm => "etcd-alarm",
            TroubleKind::NearlyFull => "etcd-nearly-full",
        }
    }

    /// Each member says it of itself; of anything else one says it for all.
    fn is_of_one_member(self) -> bool {
        self == TroubleKind::NearlyFull
    }
}

/// Something that an operator should do about etcd.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trouble {
    /// Which kind of trouble it is.
    pub kind: TroubleKind,
    /// Which member, what, and what to do.
    pub text: String,
}

impl Trouble {
    /// `which`: the member that has said so.
    pub fn no_space(which: &str) -> Trouble {
        let text = format!(
            "etcd takes no writes: its data has reached the quota ({which}). Volumes are served, but no owner or member can change. Compact \
             it, `etcdctl defrag` each member, raise --quota-backend-bytes if that is not enough, then `etcdctl alarm disarm`"
        );
        Trouble { kind: TroubleKind::NoSpace, text }
    }

    fn of_alarm(which: &str, alarm: &str) -> Trouble {
        if alarm.contains("NOSPACE") {
            return Trouble::no_space(which);
        }
        if alarm.contains("CORRUPT") {
            let text = format!(
                "etcd has found the data of a member damaged ({which}): stop that member, and replace it by a new one that learns from the \
                 others (`etcdctl member remove`, `member add`), then `etcdctl alarm disarm`"
            );
            return Trouble { kind: TroubleKind::Corrupt, text };
        }
        Trouble { kind: TroubleKind::Alarm, text: format!("etcd has an alarm ({which}): look at `etcdctl alarm list`") }
    }
}

/// What a member's status says: alarms stand among its errors.
fn of_status(to: &Endpoint, status: &Value, quota: Option<u64>) -> Vec<Trouble> {
    let errors = status["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
    let alarms = errors.iter().filter_map(Value::as_str).filter(|error| error.contains("alarm:"));
    // What it says is shown to people: the words of a stranger are not.
    let mut found: Vec<Trouble> = alarms.map(|alarm| Trouble::of_alarm(&format!("says {to}"), alarm)).collect();
    let bytes = |name: &str| status[name].as_str().and_then(|text| text.parse::<u64>().ok());
    let quota = bytes("dbSizeQuota").filter(|quota| *quota > 0).or(quota);
    if let (Some(size), Some(quota), true) = (bytes("dbSize"), quota, found.is_empty())
        && u128::from(size) * 100 >= u128::from(quota) * u128::from(NEAR_PERCENT)
    {
        let text = format!(
            "the data of etcd at {to} has {} MiB of a quota of {} MiB; at the quota it takes no writes, and no owner or member can change. \
             Compact it (--auto-compaction-retention does it by itself), `etcdctl defrag` each member, or raise --quota-backend-bytes",
            size >> 20,
            quota >> 20
        );
        found.push(Trouble { kind: TroubleKind::NearlyFull, text });
    }
    found
}

/// The quota, of what a member tells of itself for monitoring; 0 is none.
fn quota_of(metrics: &str) -> Option<u64> {
    let value = metrics.lines().find_map(|line| line.strip_prefix(QUOTA_METRIC))?;
    let bytes = value.trim().parse::<f64>().ok()?;
    (bytes >= 1.0).then_some(bytes as u64)
}

impl Members {
    /// Asks each member, one after the other; of one that does not answer nothing is said here.
    pub(super) async fn look_at_health(&self) -> Vec<Trouble> {
        let mut found: Vec<Trouble> = Vec::new();
        for at in 0..self.endpoints.len() {
            let to = &self.endpoints[at];
            let Ok(token) = self.token(at).await else { continue };
            let asked = self.client.post(to, "/v3/maintenance/status", "{}".into(), token.as_deref(), None).await;
            let Ok((StatusCode::OK, bytes)) = asked else { continue };
            let Ok(status) = serde_json::from_slice::<Value>(&bytes) else { continue };
            let quota = quota(&self.client, to).await;
            for trouble in of_status(to, &status, quota) {
                // Every member knows of every alarm.
                if trouble.kind.is_of_one_member() || found.iter().all(|known| known.kind != trouble.kind) {
                    found.push(trouble);
                }
            }
        }
        found
    }
}

async fn quota(client: &Client, to: &Endpoint) -> Option<u64> {
    match client.get(to, "/metrics").await {
        Ok((StatusCode::OK, bytes)) => quota_of(&String::from_utf8_lossy(&bytes)),
        Ok(_) | Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn codes(status: &Value, quota: Option<u64>) -> Vec<&'static str> {
        let to = Endpoint::parse("http://10.0.0.1:2379").expect("an endpoint");
        of_status(&to, status, quota).iter().map(|trouble| trouble.kind.code()).collect()
    }

    /// As etcd 3.4.23 has answered.
    #[test]
    fn alarms_and_a_quota_that_is_near_are_told_and_nothing_else_is() {
        let well =
            json!({ "header": {}, "version": "3.4.23", "dbSize": "20480", "leader": "1", "dbSizeInUse": "16384" });
        assert_eq!(codes(&well, Some(2 << 30)), [""; 0]);
        assert_eq!(codes(&well, None), [""; 0]);
        assert_eq!(codes(&well, Some(25_600)), ["etcd-nearly-full"]);
        assert_eq!(codes(&well, Some(25_601)), [""; 0]);
        let full = json!({ "dbSize": "20480", "errors": ["memberID:10276657743932975437 alarm:NOSPACE "] });
        assert_eq!(codes(&full, Some(20_480)), ["etcd-no-space"], "said once");
        let both =
            json!({ "errors": ["memberID:1 alarm:CORRUPT ", "etcdserver: no leader", "memberID:1 alarm:NEWER "] });
        assert_eq!(codes(&both, None), ["etcd-corrupt", "etcd-alarm"]);
        assert_eq!(
            codes(&json!({ "dbSize": "80", "dbSizeQuota": "100" }), None),
            ["etcd-nearly-full"],
            "3.6 says it itself"
        );
        for strange in [json!(null), json!({ "errors": 3, "dbSize": [] }), json!({ "errors": [1], "dbSize": "-4" })] {
            assert_eq!(codes(&strange, Some(1)), [""; 0]);
        }
    }

    #[test]
    fn the_quota_is_read_of_a_members_metrics() {
        let metrics = "# HELP etcd_server_quota_backend_bytes Current backend storage quota size in bytes.\n\
                       # TYPE etcd_server_quota_backend_bytes gauge\netcd_server_quota_backend_bytes 2.147483648e+09\n";
        assert_eq!(quota_of(metrics), Some(2 << 30));
        assert_eq!(quota_of("etcd_server_quota_backend_bytes 0\n"), None);
        assert_eq!(quota_of("etcd_server_quota_backend_bytes much\n"), None);
        assert_eq!(quota_of(""), None);
    }
}
