//! What a user of Forebay says and is told, as plain values: settings, and status. The daemon, the command line and the doctor share
//! these types; nothing here reaches into the daemon.
//!
//! - [`config`] is what a node is asked to be, its file; and the settings of a volume in the forms in which people give them.
//! - [`record`] is what is kept of a volume besides its tier.
//! - [`status`], [`cluster`], [`placement`], [`events`] and [`history`] are what is told.
//! - [`words`] are the states and reasons in it.
//! - [`sentence`] is how something is said in a person's language, [`told`] what is said of events and of what is degraded.
//! - [`checked`] are names and texts that a stranger may have written, [`secret`] files that nobody else may read.
//! - [`units`] and [`calendar`] are sizes and times as people write them; [`paths`] where things lie when nobody says otherwise.

pub mod calendar;
pub mod checked;
pub mod cluster;
pub mod config;
pub mod events;
pub mod history;
pub mod paths;
pub mod placement;
pub mod record;
pub mod secret;
pub mod sentence;
pub mod status;
pub mod told;
pub mod units;
pub mod words;
