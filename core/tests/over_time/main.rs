//! A volume over seconds and minutes before devices of known speeds. Time is counted, not waited for.

mod assembled_reads;
mod depth;
mod drain_limit;
mod failing_reads;
mod fairness;
mod flash_log;
mod journal_pieces;
mod legs;
mod merging;
mod stand;
