//! What a start makes of the bytes that earlier ones have left on a tier.

mod damaged;
mod members;
mod stand;
mod starts;
