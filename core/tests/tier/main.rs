//! What a start makes of the bytes that earlier ones have left on a tier, and what reads show of a tier that is slow.

mod damaged;
mod members;
mod reads;
mod stand;
mod starts;
mod superseded;
