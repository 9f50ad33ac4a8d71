//! When certificates end, and what an operator has to be told of it before.

use super::{DAY, RENEWAL_DUE, day};
use std::time::Duration;

/// From so long before the end of an identity it is urgent.
const URGENT: Duration = DAY.saturating_mul(14);
/// So long before its end a new authority is to be planned: each node is to be enrolled by it.
const AUTHORITY_DUE: Duration = DAY.saturating_mul(365);

/// When the certificates of a node end, as times since 1970.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ends {
    /// The node's name.
    pub name: String,
    /// That of its own certificate.
    pub own: Duration,
    /// That of the certificate of the cluster's authority.
    pub authority: Duration,
}

/// What is to be done about a certificate before it ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Due {
    /// Links fail soon, or fail already.
    pub is_urgent: bool,
    /// What is to be done, in words.
    pub text: String,
}

impl Ends {
    /// What is to be done at this time. `waiting`: the end of the certificate in the identity file, which may be another one by now.
    pub fn due(&self, now: Duration, waiting: Option<Duration>) -> Option<Due> {
        let (name, until) = (&self.name, day(self.own));
        if now + RENEWAL_DUE >= self.own {
            let has = if now >= self.own { "ended" } else { "ends" };
            let cure = match waiting {
                Some(waiting) if waiting > self.own => {
                    format!(
                        "its identity file has one until {} already: restart the daemon, which reads it at start",
                        day(waiting)
                    )
                }
                _ => format!(
                    "renew it with `forebay node enrol {name} --renew` where the cluster's authority is, carry the file here, \
                     and restart the daemon"
                ),
            };
            let text = format!("the identity of {name} {has} on {until}, and links need it; {cure}");
            return Some(Due { is_urgent: now + URGENT >= self.own, text });
        }
        (now + AUTHORITY_DUE >= self.authority).then(|| Due {
            is_urgent: false,
            text: format!(
                "the cluster's authority ends on {}: whoever checks that refuses its certificates from then on (links do not); plan \
                 a new one, which makes every node's identity anew (`forebay node init-ca`)",
                day(self.authority)
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(year: i32, month: u8, of_month: u8) -> Duration {
        let time = rcgen::date_time_ymd(year, month, of_month) - rcgen::date_time_ymd(1970, 1, 1);
        Duration::from_secs(time.whole_seconds() as u64)
    }

    #[test]
    fn an_operator_is_told_in_time_what_to_do() {
        let ends = Ends { name: "alpha".into(), own: at(2028, 6, 1), authority: at(2046, 6, 1) };
        let told = |now, waiting| ends.due(now, waiting).map(|due| (due.is_urgent, due.text));
        assert_eq!(told(at(2028, 4, 1), None), None, "61 days before");
        let (urgent, text) = told(at(2028, 4, 3), Some(ends.own)).expect("59 days before");
        assert!(!urgent && text.contains("ends on 2028-06-01"), "{text}");
        assert!(text.contains("`forebay node enrol alpha --renew`"), "{text}");
        let (urgent, text) = told(at(2028, 6, 2), Some(at(2030, 6, 1))).expect("it has ended");
        assert!(urgent && text.contains("ended on") && text.contains("until 2030-06-01 already: restart"), "{text}");
        let young = Ends { own: at(2046, 5, 1), ..ends };
        let text = young.due(at(2045, 6, 2), None).expect("the authority's last year").text;
        assert!(text.contains("authority ends on 2046-06-01"), "{text}");
    }
}
