//! Counters beside the cores that the kernel shows below `/sys/bus/event_source/devices`: what there is, and how an event is
//! spelled in the words of its `format`.

use forebay_host::system::System;
use forebay_host::topology::numbers;
use std::collections::BTreeMap;

/// Where the kernel shows its PMUs.
pub const FOLDER: &str = "/sys/bus/event_source/devices";

/// A PMU of the kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Pmu {
    /// Its name, such as `uncore_imc_0`.
    pub name: String,
    /// Its number for `perf_event_open`.
    pub kind: u32,
    /// One CPU of each socket (or die): there it is read.
    pub cpus: Vec<u32>,
    format: BTreeMap<String, Field>,
}

/// Where a word of an event goes: which of `config`, `config1`, `config2`, and to which bits of it, lowest first.
#[derive(Clone, Debug, PartialEq)]
struct Field {
    word: usize,
    bits: Vec<(u32, u32)>,
}

/// An event that the kernel has a name for.
#[derive(Clone, Debug, PartialEq)]
pub struct Named {
    /// Fields of the event, as the PMU names them, each with its value.
    pub terms: Vec<(String, u64)>,
    /// How many bytes one count stands for.
    pub bytes: f64,
}

impl Field {
    /// The field that a PMU describes as `config:0-7,32-35`; none if it cannot be read.
    fn parse(text: &str) -> Option<Field> {
        let (word, bits) = text.trim().split_once(':')?;
        let word = match word {
            "config" => 0,
            "config1" => 1,
            "config2" => 2,
            _ => return None,
        };
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let range: (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            (range.0 <= range.1 && range.1 < 64).then_some(range)
        };
        Some(Field { word, bits: bits.split(',').map(range).collect::<Option<_>>()? })
    }

    fn width(&self) -> u32 {
        self.bits.iter().map(|(first, last)| last - first + 1).sum()
    }
}

impl Pmu {
    /// All of them, by name.
    pub fn all(system: &System) -> Vec<Pmu> {
        Pmu::of_kinds(system, &[""])
    }

    /// Those whose names begin so; a large server has hundreds.
    pub fn of_kinds(system: &System, kinds: &[&str]) -> Vec<Pmu> {
        let names = system.list(FOLDER).known().unwrap_or_default();
        let wanted = names.into_iter().filter(|name| kinds.iter().any(|kind| name.starts_with(kind)));
        wanted.filter_map(|name| Pmu::read(system, name)).collect()
    }

    fn read(system: &System, name: String) -> Option<Pmu> {
        let folder = format!("{FOLDER}/{name}");
        let field = |term: String| {
            let text = system.text(&format!("{folder}/format/{term}")).known()?;
            Some((term, Field::parse(&text)?))
        };
        let format = system.list(&format!("{folder}/format")).known().unwrap_or_default();
        Some(Pmu {
            kind: system.number(&format!("{folder}/type")).known()?,
            cpus: system.text(&format!("{folder}/cpumask")).known().map(|text| numbers(&text)).unwrap_or_default(),
            format: format.into_iter().filter_map(field).collect(),
            name,
        })
    }

    /// Its number among its kind: 3 of `uncore_imc_3`, 0 of `uncore_imc`.
    pub fn number_of(&self, kind: &str) -> Option<u32> {
        match self.name.strip_prefix(kind)? {
            "" => Some(0),
            rest => rest.strip_prefix('_')?.parse().ok(),
        }
    }

    /// The largest value that a word of an event can have; none: it knows no such word.
    pub fn most(&self, term: &str) -> Option<u64> {
        let width = self.format.get(term)?.width();
        Some(if width >= 64 { u64::MAX } else { (1 << width) - 1 })
    }

    /// The three words of configuration of an event; none where it knows no such word, or the value does not fit.
    pub fn encode<T: AsRef<str>>(&self, terms: &[(T, u64)]) -> Option<[u64; 3]> {
        let mut config = [0; 3];
        for (term, value) in terms {
            let field = self.format.get(term.as_ref())?;
            if *value > self.most(term.as_ref())? {
                return None;
            }
            let mut left = *value;
            for &(first, last) in &field.bits {
                let width = last - first + 1;
                let part = if width >= 64 { left } else { left & ((1 << width) - 1) };
                config[field.word] |= part << first;
                left = left.checked_shr(width).unwrap_or(0);
            }
        }
        Some(config)
    }

    /// An event that it has a name for and that counts bytes.
    pub fn named(&self, system: &System, event: &str) -> Option<Named> {
        let file = format!("{FOLDER}/{}/events/{event}", self.name);
        let text = system.text(&file).known()?;
        let number = |value: &str| match value.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => value.parse().ok(),
        };
        let term = |part: &str| match part.trim().split_once('=') {
            Some((term, value)) => Some((term.to_owned(), number(value)?)),
            None => Some((part.trim().to_owned(), 1)),
        };
        let terms = text.split(',').map(term).collect::<Option<Vec<_>>>()?;
        let unit = match system.text(&format!("{file}.unit")).known().as_deref() {
            Some("MiB") => 1_048_576.0,
            Some("Bytes" | "B") => 1.0,
            // Without a unit it counts lines of the cache.
            None => return Some(Named { terms, bytes: 64.0 }),
            Some(_) => return None,
        };
        let scale: f64 = system.number(&format!("{file}.scale")).known()?;
        Some(Named { terms, bytes: scale * unit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Tree;

    fn tree() -> Tree {
        let at = |name: &str| format!("{FOLDER}/uncore_imc_3/{name}");
        Tree::new()
            .file(&at("type"), "17\n")
            .file(&at("cpumask"), "0,18\n")
            .file(&at("format/event"), "config:0-7\n")
            .file(&at("format/umask"), "config:8-15\n")
            .file(&at("format/ch_mask"), "config1:4-7\n")
            .file(&at("format/odd"), "config9:1\n")
            .file(&at("events/cas_count_read"), "event=0x04,umask=0x03\n")
            .file(&at("events/cas_count_read.scale"), "6.103515625e-5\n")
            .file(&at("events/cas_count_read.unit"), "MiB\n")
            .file(&at("events/clockticks"), "event=0xff,edge\n")
            .file(&at("events/joules"), "event=0x02\n")
            .file(&at("events/joules.unit"), "Joules\n")
            .file(&format!("{FOLDER}/software/type"), "1\n")
            .file(&format!("{FOLDER}/amd_df/type"), "12\n")
            .file(&format!("{FOLDER}/amd_df/format/event"), "config:0-7,32-35,59-60\n")
            .file(&format!("{FOLDER}/amd_df/format/umask"), "config:8-15\n")
    }

    fn one(name: &str) -> Pmu {
        Pmu::all(&tree().system()).into_iter().find(|pmu| pmu.name == name).expect("it is there")
    }

    #[test]
    fn a_named_event_is_read_with_its_bytes() {
        let tree = tree();
        let pmu = one("uncore_imc_3");
        assert_eq!((pmu.kind, pmu.cpus.as_slice(), pmu.number_of("uncore_imc")), (17, &[0, 18][..], Some(3)));
        let read = pmu.named(&tree.system(), "cas_count_read").unwrap();
        assert!((read.bytes - 64.0).abs() < 1e-9, "{read:?}");
        assert_eq!(pmu.encode(&read.terms), Some([0x304, 0, 0]));
        assert_eq!(pmu.named(&tree.system(), "clockticks").unwrap().terms[1], ("edge".to_owned(), 1));
        assert_eq!(pmu.named(&tree.system(), "joules"), None, "no bytes");
        assert_eq!(pmu.named(&tree.system(), "cas_count_write"), None);
    }

    #[test]
    fn a_value_goes_to_the_bits_that_its_format_names_and_never_beyond() {
        let df = one("amd_df");
        assert_eq!(df.encode(&[("event", 0x7c7), ("umask", 0x02)]), Some([0x7_0000_02c7, 0, 0]));
        assert_eq!(df.encode(&[("event", 0x4000)]), None, "fourteen bits");
        let imc = one("uncore_imc_3");
        assert_eq!(imc.encode(&[("ch_mask", 0xf)]), Some([0, 0xf0, 0]));
        assert_eq!((imc.most("ch_mask"), imc.most("odd"), imc.most("fc_mask")), (Some(15), None, None));
        assert_eq!(imc.encode(&[("fc_mask", 7)]), None);
    }

    #[test]
    fn kinds_with_a_like_name_are_not_taken_for_each_other() {
        let mut imc = one("uncore_imc_3");
        imc.name = "uncore_imc_free_running_0".to_owned();
        assert_eq!(imc.number_of("uncore_imc"), None);
        assert_eq!(imc.number_of("uncore_imc_free_running"), Some(0));
    }

    #[test]
    fn a_host_without_any_has_none() {
        assert_eq!(Pmu::all(&Tree::new().system()), []);
        assert_eq!(Pmu::all(&Tree::new().hidden(&format!("{FOLDER}/x/type")).system()), []);
    }
}
