//! Who has logged in. A session is a random word in a browser's cookie; it ends by itself, by logging out, and with the
//! daemon. There is a bound on them: the oldest gives way.

use super::access::{Role, random_word};
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A session ends after so long, whatever is done in it: a working day, and no night.
pub const LIFE: Duration = Duration::from_secs(12 * 3600);
const SESSIONS_MAX: usize = 64;

/// Sessions of browsers, by the word that each shows.
#[derive(Default)]
pub struct Sessions(Mutex<HashMap<String, Session>>);

#[derive(Clone, Copy)]
struct Session {
    role: Role,
    begun: Instant,
}

impl Sessions {
    /// Begins a session; its word is for the cookie.
    pub fn begin(&self, role: Role, now: Instant) -> anyhow::Result<String> {
        let id = random_word()?;
        let mut sessions = self.0.lock().expect("nobody panics with it");
        sessions.retain(|_, session| now.duration_since(session.begun) < LIFE);
        if sessions.len() >= SESSIONS_MAX
            && let Some(oldest) = sessions.iter().min_by_key(|(_, session)| session.begun).map(|(id, _)| id.clone())
        {
            sessions.remove(&oldest);
        }
        sessions.insert(id.clone(), Session { role, begun: now });
        Ok(id)
    }

    /// The role of the session with this word; none: there is none, or it is over.
    pub fn role_of(&self, id: &str, now: Instant) -> Option<Role> {
        let sessions = self.0.lock().expect("nobody panics with it");
        let session = sessions.get(id)?;
        (now.duration_since(session.begun) < LIFE).then_some(session.role)
    }

    /// Ends one, if there is such.
    pub fn end(&self, id: &str) {
        self.0.lock().expect("nobody panics with it").remove(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_end_by_time_by_logging_out_and_by_their_number() {
        let sessions = Sessions::default();
        let now = Instant::now();
        let first = sessions.begin(Role::ReadOnly, now).unwrap();
        assert_eq!(sessions.role_of(&first, now), Some(Role::ReadOnly));
        assert_eq!(sessions.role_of(&first, now + LIFE), None);
        assert_eq!(sessions.role_of("", now), None);
        let mut ids = Vec::new();
        for i in 0..SESSIONS_MAX as u64 {
            ids.push(sessions.begin(Role::Admin, now + Duration::from_secs(1 + i)).unwrap());
        }
        let later = now + Duration::from_secs(100);
        assert_eq!(sessions.role_of(&first, later), None, "the oldest gave way");
        assert!(ids.iter().all(|id| sessions.role_of(id, later) == Some(Role::Admin)));
        sessions.end(&ids[0]);
        assert_eq!(sessions.role_of(&ids[0], later), None);
    }
}
